import type { OutcomeName } from "@/api/schema";

const SYMBOLS: Record<OutcomeName, { shape: string; colour: string }> = {
  done: { shape: "●", colour: "text-online" },
  running: { shape: "◐", colour: "text-busy" },
  failed: { shape: "✕", colour: "text-offline" },
  timed_out: { shape: "✕", colour: "text-offline" },
  refused: { shape: "◔", colour: "text-suspect" },
  cancelled: { shape: "‖", colour: "text-paused" },
};
/** For a gateway that is newer than this page and has more outcomes. */
const UNKNOWN = { shape: "?", colour: "text-muted" };

/** How a job or an attempt ended, as shape, colour and word. */
export function Outcome({ of: outcome }: { of: OutcomeName }) {
  const { shape, colour } = SYMBOLS[outcome] ?? UNKNOWN;
  return (
    <span className="inline-flex items-center gap-1.5 whitespace-nowrap">
      <span aria-hidden className={colour}>
        {shape}
      </span>
      {outcome.replace("_", " ")}
    </span>
  );
}
