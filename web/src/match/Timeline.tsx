import type { Attempt } from "@/api/types";
import { ms, plural } from "@/lib/format";
import { arrival } from "./arrival";
import { Outcome } from "./Outcome";

interface Props {
  attempts: Attempt[];
  /** Else nobody saw when a node began to write. */
  isStreamed: boolean;
}

/** The attempts on one line of time: waiting for the first token, writing, and where another node took over. */
export function Timeline({ attempts, isStreamed }: Props) {
  if (!attempts.length) return <p className="text-muted">Nothing was sent to a node.</p>;
  const end = Math.max(1, ...attempts.map((one) => one.ended_ms ?? one.first_token_ms ?? one.started_ms));
  return (
    <ol className="space-y-3" data-testid="timeline">
      {attempts.map((one, at) => (
        <li key={`${one.node}-${at}`}>
          <div className="flex flex-wrap justify-between gap-2">
            <span>
              <span className="num text-muted">{at + 1}.</span> {one.name ?? `${one.node.slice(0, 10)}…`}
            </span>
            <Outcome of={one.outcome} />
          </div>
          <Bar one={one} end={end} isStreamed={isStreamed} />
          <p className="num small text-muted">
            sent at {ms(one.started_ms)} · {arrival(one, isStreamed)} · {one.ended_ms === null ? "not over yet" : `ended at ${ms(one.ended_ms)}`} ·{" "}
            {plural(one.tokens, "token")}
          </p>
          {one.continued_from && (
            <p className="small text-volt">
              Went on from token {one.continued_from.tokens}: the client saw one unbroken answer.
            </p>
          )}
          {one.reason && <p className="small break-words text-suspect">{one.reason}</p>}
        </li>
      ))}
    </ol>
  );
}

function Bar({ one, end, isStreamed }: { one: Attempt; end: number; isStreamed: boolean }) {
  const place = (value: number) => `${(value / end) * 100}%`;
  const ended = one.ended_ms ?? end;
  const first = one.first_token_ms ?? (isStreamed ? ended : one.started_ms);
  return (
    <div className="relative my-1.5 h-4 rounded-md bg-line" aria-hidden>
      <span
        title="until the first token"
        className="absolute inset-y-0 bg-suspect/70"
        style={{ left: place(one.started_ms), width: `max(2px, ${place(first - one.started_ms)})` }}
      />
      {one.continued_from && <span title="took over here" className="absolute -inset-y-1 w-0.5 bg-volt" style={{ left: place(first) }} />}
      <span
        title={isStreamed ? "writing" : "waiting and writing"}
        className={`absolute inset-y-0 ${one.outcome === "done" || one.outcome === "running" ? "bg-online" : "bg-offline"}`}
        style={{ left: place(first), width: `max(2px, ${place(ended - first)})` }}
      />
    </div>
  );
}
