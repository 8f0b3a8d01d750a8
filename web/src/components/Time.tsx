import { ago, exactTime } from "@/lib/format";
import { useNow } from "@/lib/now";

/** A relative time; the exact one is shown on hover. `at` is in Unix seconds. */
export function Time({ at }: { at: number | null | undefined }) {
  const now = useNow();
  if (!at) return <span className="text-muted">never</span>;
  return (
    <time dateTime={new Date(at * 1000).toISOString()} title={exactTime(at)} className="whitespace-nowrap">
      {ago(at, now)}
    </time>
  );
}
