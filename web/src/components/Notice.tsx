import { TriangleAlert } from "lucide-react";
import type { ReactNode } from "react";
import { errorText } from "@/api/client";

/** An error in the gateway's words; nothing without an error. */
export function ErrorNotice({ error }: { error: unknown }) {
  if (!error) return null;
  return (
    <div role="alert" className="flex gap-2 rounded-md border border-offline p-3">
      <TriangleAlert size={16} className="mt-0.5 shrink-0 text-offline" aria-hidden />
      <p className="min-w-0 break-words">{errorText(error)}</p>
    </div>
  );
}

/** Says that there is nothing to show yet, and what to do about it. */
export function EmptyState({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="space-y-3 rounded-md border border-dashed border-line p-6">
      <p className="font-semibold">{title}</p>
      {children}
    </div>
  );
}

/** Says that the network runs without a chain, and what is off because of it. */
export function NoChain({ what }: { what: string }) {
  return (
    <p className="text-muted" data-testid="no-chain">
      {what} need a chain, and this network has none. Its operator can give it one: sparewatt up without --no-chain, or a gateway with --chain-url.
    </p>
  );
}

/** Keeps the place of what comes. */
export function Loading() {
  return (
    <div className="space-y-3 p-6" role="status">
      <span className="sr-only">Loading …</span>
      {["w-1/3", "w-2/3", "w-1/2"].map((width) => (
        <div key={width} aria-hidden className={`h-4 animate-pulse rounded-md bg-line ${width}`} />
      ))}
    </div>
  );
}
