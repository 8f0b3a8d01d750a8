import type { LeaseMatch } from "@/api/schema";
import { useTick } from "@/lib/useTick";
import { isRunning, leftMs, phaseSteps, type StepState } from "./phases";

const SHAPES: Record<StepState, { shape: string; colour: string; bar: string; word: string }> = {
  done: { shape: "●", colour: "text-online", bar: "bg-online", word: "done" },
  now: { shape: "◐", colour: "text-busy", bar: "bg-busy", word: "now" },
  waiting: { shape: "○", colour: "text-muted", bar: "bg-line", word: "to come" },
  nobody: { shape: "◔", colour: "text-suspect", bar: "bg-suspect", word: "done, nobody won" },
  failed: { shape: "✕", colour: "text-offline", bar: "bg-offline", word: "failed" },
};

/** The phases of an attempt on one line, on a phone one below the other. `seenMs` is when the reply came. */
export function PhaseTimeline({ match, seenMs }: { match: LeaseMatch; seenMs: number }) {
  const nowMs = useTick(100, isRunning(match.phase.name));
  const steps = phaseSteps(match, leftMs(match.phase.ends_in_ms, seenMs, Math.max(nowMs, seenMs)));
  return (
    <ol className="grid gap-x-1 gap-y-2 sm:grid-cols-5" data-testid="phases" data-phase={match.phase.name}>
      {steps.map(({ name, state, note }) => (
        <li key={name} aria-current={state === "now" ? "step" : undefined} className="max-sm:flex max-sm:items-baseline max-sm:justify-between max-sm:gap-3">
          <span aria-hidden className={`mb-1.5 block h-1.5 rounded-md max-sm:hidden ${SHAPES[state].bar}`} />
          <span className={`flex items-center gap-1.5 whitespace-nowrap ${state === "now" ? "font-semibold" : ""}`}>
            <span aria-hidden className={`num ${SHAPES[state].colour}`}>
              {SHAPES[state].shape}
            </span>
            {name}
            <span className="sr-only">: {SHAPES[state].word}</span>
          </span>
          <span className="num small block pr-2 text-muted sm:min-h-9">{note}</span>
        </li>
      ))}
    </ol>
  );
}
