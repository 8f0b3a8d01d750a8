import type { NodeStateName } from "@/api/schema";

const BADGES: Record<NodeStateName, { shape: string; colour: string }> = {
  online: { shape: "●", colour: "text-online" },
  busy: { shape: "◐", colour: "text-busy" },
  suspect: { shape: "◔", colour: "text-suspect" },
  offline: { shape: "✕", colour: "text-offline" },
  draining: { shape: "⌄", colour: "text-paused" },
  paused: { shape: "‖", colour: "text-paused" },
};
/** For a gateway that is newer than this page and has more states. */
const UNKNOWN = { shape: "?", colour: "text-muted" };

/** A node's state as shape, colour and word. */
export function NodeStateBadge({ state, count }: { state: NodeStateName; count?: number | undefined }) {
  const { shape, colour } = BADGES[state] ?? UNKNOWN;
  return (
    <span className="inline-flex items-center gap-1.5 whitespace-nowrap" data-state={state}>
      <span aria-hidden className={`${colour} num`}>
        {shape}
      </span>
      {count !== undefined && <span className="num">{count}</span>}
      <span>{state}</span>
    </span>
  );
}
