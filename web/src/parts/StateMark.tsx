import type { StateName } from "@/api/types";

const MARKS: Record<StateName, { shape: string; colour: string; word: string }> = {
  online: { shape: "●", colour: "text-online", word: "online" },
  busy: { shape: "◐", colour: "text-busy", word: "busy" },
  suspect: { shape: "◔", colour: "text-suspect", word: "suspect" },
  offline: { shape: "✕", colour: "text-offline", word: "offline" },
  draining: { shape: "‖", colour: "text-paused", word: "paused" },
};

/** A state by shape, colour and word. */
export function StateMark({ state, count }: { state: StateName; count?: number | undefined }) {
  const { shape, colour, word } = MARKS[state];
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
