import type { LeaseMatch } from "@/api/schema";
import { useTick } from "@/lib/useTick";
import { countdown, leftMs, openPhase, reportedPhase, type Windows } from "./phases";

const NAMES = { commit: "bids come in sealed", reveal: "bids are opened", vote: "validators vote" };

interface Props {
  order: Windows;
  /** What validators report of it, and when that came, if it is known. */
  match?: LeaseMatch | undefined;
  seenMs?: number;
}

/** Where the auction of an open order is, with a countdown. It keeps its place, so that the row does not move. */
export function OpenPhase({ order, match, seenMs = 0 }: Props) {
  const nowMs = useTick(100, order.state === "open");
  const phase = match ? reportedPhase(match, leftMs(match.phase.ends_in_ms, seenMs, Math.max(nowMs, seenMs))) : openPhase(order, nowMs);
  if (order.state !== "open" || !phase) return null;
  return (
    <span className="block w-48 max-w-full max-sm:ml-auto">
      <span className="small flex justify-between gap-2 text-muted">
        {NAMES[phase.name]}
        <span className="num" data-testid="countdown">
          {phase.leftMs === null ? "" : countdown(phase.leftMs)}
        </span>
      </span>
      <span aria-hidden className="mt-0.5 block h-1 overflow-hidden rounded-md bg-line">
        <span className="block h-full bg-busy" style={{ width: `${Math.min(1, phase.share) * 100}%` }} />
      </span>
    </span>
  );
}
