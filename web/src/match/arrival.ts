// When an attempt's answer began to come, in words.
import type { Attempt } from "../api/types.ts";
import { ms } from "../lib/format.ts";

/** An answer that is not streamed has no first token that anybody saw: it came in one piece, or did not come. */
export function arrival(attempt: Attempt, isStreamed: boolean): string {
  if (attempt.first_token_ms !== null) return `first token at ${ms(attempt.first_token_ms)}`;
  const isWaiting = attempt.outcome === "running";
  if (isStreamed) return isWaiting ? "no token yet" : "first token never";
  return isWaiting ? "will come in one piece" : attempt.outcome === "done" ? "in one piece" : "no answer";
}
