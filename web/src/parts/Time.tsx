import { ago, exact } from "@/lib/format";
import { useNow } from "@/lib/now";

/** Relative, with the exact time on hover. */
export function Time({ at }: { at: number | null | undefined }) {
  const now = useNow();
  if (!at) return <span className="text-muted">never</span>;
  return (
    <time dateTime={new Date(at * 1000).toISOString()} title={exact(at)} className="whitespace-nowrap">
      {ago(at, now)}
    </time>
  );
}
