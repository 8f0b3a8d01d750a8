import type { MatchAttempt } from "@/api/schema";
import { ms, nodeLabel, plural } from "@/lib/format";
import { firstTokenText } from "./firstToken";
import { Outcome } from "./Outcome";

interface Props {
  attempts: MatchAttempt[];
  /** If an answer is not streamed, the gateway does not see when the node wrote its first token. */
  isStreamed: boolean;
}

/** The attempts on one time axis: waiting for the first token, writing, and where another node took over. */
export function Timeline({ attempts, isStreamed }: Props) {
  if (!attempts.length) return <p className="text-muted">The request was sent to no node.</p>;
  const endMs = Math.max(1, ...attempts.map((one) => one.ended_ms ?? one.first_token_ms ?? one.started_ms));
  return (
    <ol className="space-y-3" data-testid="timeline">
      {attempts.map((one, at) => (
        <li key={`${one.node}-${at}`}>
          <div className="flex flex-wrap justify-between gap-2">
            <span>
              <span className="num text-muted">{at + 1}.</span> {nodeLabel(one)}
            </span>
            <Outcome of={one.outcome} />
          </div>
          <AttemptBar attempt={one} endMs={endMs} isStreamed={isStreamed} />
          <p className="num small text-muted">
            sent at {ms(one.started_ms)} · {firstTokenText(one, isStreamed)} · {one.ended_ms === null ? "still running" : `ended at ${ms(one.ended_ms)}`} ·{" "}
            {plural(one.tokens, "token")}
          </p>
          {one.continued_from && (
            <p className="small text-volt">
              Failover: this node continued the answer after {plural(one.continued_from.tokens, "token")}. The client got one unbroken stream.
            </p>
          )}
          {one.reason && <p className="small break-words text-suspect">{one.reason}</p>}
        </li>
      ))}
    </ol>
  );
}

function AttemptBar({ attempt, endMs, isStreamed }: { attempt: MatchAttempt; endMs: number; isStreamed: boolean }) {
  const percentOf = (timeMs: number) => `${(timeMs / endMs) * 100}%`;
  const range = (fromMs: number, toMs: number) => ({ left: percentOf(fromMs), width: `max(2px, ${percentOf(toMs - fromMs)})` });
  const endedMs = attempt.ended_ms ?? endMs;
  const firstMs = attempt.first_token_ms ?? (isStreamed ? endedMs : attempt.started_ms);
  const isGood = attempt.outcome === "done" || attempt.outcome === "running";
  return (
    <div className="relative my-1.5 h-4 rounded-md bg-line" aria-hidden>
      <span title="until the first token" className="absolute inset-y-0 bg-suspect/70" style={range(attempt.started_ms, firstMs)} />
      {attempt.continued_from && <span title="took over here" className="absolute -inset-y-1 w-0.5 bg-volt" style={{ left: percentOf(firstMs) }} />}
      <span
        title={isStreamed ? "writing" : "waiting and writing"}
        className={`absolute inset-y-0 ${isGood ? "bg-online" : "bg-offline"}`}
        style={range(firstMs, endedMs)}
      />
    </div>
  );
}
