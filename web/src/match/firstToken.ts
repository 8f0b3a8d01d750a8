import type { MatchAttempt } from "../api/schema.ts";
import { ms } from "../lib/format.ts";

/** When the first token of an attempt came, in words. If the answer is not streamed, the gateway does not see that time. */
export function firstTokenText(attempt: MatchAttempt, isStreamed: boolean): string {
  if (attempt.first_token_ms !== null) return `first token at ${ms(attempt.first_token_ms)}`;
  const isRunning = attempt.outcome === "running";
  if (isStreamed) return isRunning ? "no token yet" : "first token never";
  return isRunning ? "will come in one piece" : attempt.outcome === "done" ? "in one piece" : "no answer";
}
