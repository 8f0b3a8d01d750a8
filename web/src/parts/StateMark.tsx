import type { StateName } from "@/api/types";

const MARKS: Record<StateName, { shape: string; colour: string; word: string }> = {
  online: { shape: "●", colour: "text-online", word: "online" },
  busy: { shape: "◐", colour: "text-busy", word: "busy" },
  suspect: { shape: "◔", colour: "text-suspect", word: "suspect" },
  offline: { shape: "✕", colour: "text-offline", word: "offline" },
  draining: { shape: "⌄", colour: "text-paused", word: "leaving" },
  paused: { shape: "‖", colour: "text-paused", word: "paused" },
};
/** Of a gateway that knows more states than this page. */
const OTHER = { shape: "?", colour: "text-muted", word: "unknown" };

/** A state by shape, colour and word. */
export function StateMark({ state, count }: { state: StateName; count?: number | undefined }) {
  const { shape, colour, word } = MARKS[state] ?? OTHER;
  return (
    <span className="inline-flex items-center gap-1.5 whitespace-nowrap" data-state={state}>
      <span aria-hidden className={`${colour} num`}>
        {shape}
      </span>
      {count !== undefined && <span className="num">{count}</span>}
      <span>{word}</span>
    </span>
  );
}
