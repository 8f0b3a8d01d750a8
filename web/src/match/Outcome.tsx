const LOOKS: Record<string, { mark: string; colour: string; word: string }> = {
  done: { mark: "●", colour: "text-online", word: "done" },
  running: { mark: "◐", colour: "text-busy", word: "running" },
  failed: { mark: "✕", colour: "text-offline", word: "failed" },
  timed_out: { mark: "✕", colour: "text-offline", word: "timed out" },
  refused: { mark: "◔", colour: "text-suspect", word: "refused" },
  cancelled: { mark: "‖", colour: "text-paused", word: "cancelled" },
};

/** How a job or an attempt ended, by shape, colour and word. */
export function Outcome({ of }: { of: string }) {
  const look = LOOKS[of] ?? { mark: "?", colour: "text-muted", word: of };
  return (
    <span className="inline-flex items-center gap-1.5 whitespace-nowrap">
      <span aria-hidden className={look.colour}>
        {look.mark}
      </span>
      {look.word}
    </span>
  );
}
