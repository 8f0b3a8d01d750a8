// Sends a chat request, reads the streamed answer, and collects what the page shows below it.
import { api, errorText, request } from "@/api/client";
import type { ChatChunk, ChatRequest, MatchList } from "@/api/schema";
import { dataLines } from "@/lib/sse";

/** The fields of a request that the playground sets. `provider` is the policy. */
export interface ChatQuestion {
  model: string;
  messages: ChatRequest["messages"];
  maxTokens: number;
  provider: Record<string, unknown>;
}

export interface Answer {
  text: string;
  state: "waiting" | "writing" | "done" | "failed" | "stopped";
  matchId: string | null;
  node: string | null;
  region: string | null;
  firstTokenMs: number | null;
  tokensPerS: number | null;
  tokens: number | null;
  costUsd: number | null;
  error: string | null;
}

export const WAITING: Answer = {
  text: "",
  state: "waiting",
  matchId: null,
  node: null,
  region: null,
  firstTokenMs: null,
  tokensPerS: null,
  tokens: null,
  costUsd: null,
  error: null,
};

type AnswerChange = (change: Partial<Answer>) => void;

export function requestBody({ model, messages, maxTokens, provider }: ChatQuestion): ChatRequest {
  return {
    model,
    messages,
    stream: true,
    stream_options: { include_usage: true },
    max_tokens: maxTokens,
    ...(Object.keys(provider).length ? { provider } : {}),
  };
}

/** Calls `onChange` with the answer as it grows. It never throws: an error is part of the answer. */
export async function ask(question: ChatQuestion, signal: AbortSignal, onChange: (answer: Answer) => void): Promise<void> {
  let answer = WAITING;
  const change: AnswerChange = (changed) => onChange((answer = { ...answer, ...changed }));
  const [beganMs, beganUnixS] = [performance.now(), Date.now() / 1000];
  try {
    const reply = await request("/v1/chat/completions", { body: requestBody(question), signal });
    change({
      matchId: reply.headers.get("x-sparewatt-match-id"),
      node: reply.headers.get("x-sparewatt-node"),
      region: reply.headers.get("x-sparewatt-region"),
    });
    for await (const line of dataLines(reply)) {
      if (line === "[DONE]") break;
      addChunk(JSON.parse(line) as ChatChunk, answer, performance.now() - beganMs, change);
    }
    if (answer.state !== "failed") change({ state: "done", tokensPerS: speedOf(answer, performance.now() - beganMs) });
    if (!answer.matchId) change(await findMatch(question.model, beganUnixS));
  } catch (error) {
    change(signal.aborted ? { state: "stopped" } : { state: "failed", error: errorText(error) });
  }
}

function addChunk({ choices, usage, error }: ChatChunk, answer: Answer, passedMs: number, change: AnswerChange): void {
  if (error) return change({ state: "failed", error: error.message ?? "The answer broke off." });
  const text = choices?.[0]?.delta?.content;
  if (text) change({ text: answer.text + text, state: "writing", firstTokenMs: answer.firstTokenMs ?? passedMs });
  if (usage) change({ tokens: usage.completion_tokens ?? null, costUsd: usage.cost ?? null });
}

/** After a long wait in the queue the reply's headers are sent before the match, so they do not name it. */
async function findMatch(model: string, beganUnixS: number): Promise<Partial<Answer>> {
  const { data } = await api<MatchList>("/v1/matches?limit=20");
  const match = data.findLast((one) => one.model === model && one.created_at >= beganUnixS - 1);
  return match ? { matchId: match.match_id, node: match.attempts.at(-1)?.node ?? null } : {};
}

/** Tokens per second after the first token. */
function speedOf({ firstTokenMs, tokens }: Answer, passedMs: number): number | null {
  if (firstTokenMs === null || !tokens || tokens < 2) return null;
  const writingS = (passedMs - firstTokenMs) / 1000;
  return writingS > 0 ? (tokens - 1) / writingS : null;
}
