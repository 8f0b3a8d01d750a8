// One answer: asked for, streamed, and what the network tells about it.
import { api, ApiError, send } from "@/api/client";
import type { List, MatchLine } from "@/api/types";
import { dataLines } from "@/lib/sse";

export interface Message {
  role: "user" | "assistant";
  content: string;
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

export interface Asked {
  model: string;
  messages: Message[];
  maxTokens: number | null;
  provider: Record<string, unknown>;
}

interface Chunk {
  choices?: { delta?: { content?: string | null } }[];
  usage?: { completion_tokens?: number; cost?: number } | null;
  error?: { message?: string };
}

export function bodyOf(asked: Asked): Record<string, unknown> {
  return {
    model: asked.model,
    messages: asked.messages,
    stream: true,
    stream_options: { include_usage: true },
    ...(asked.maxTokens ? { max_tokens: asked.maxTokens } : {}),
    ...(Object.keys(asked.provider).length ? { provider: asked.provider } : {}),
  };
}

/** Calls `onChange` with the answer as it grows; never throws. */
export async function ask(asked: Asked, signal: AbortSignal, onChange: (answer: Answer) => void): Promise<void> {
  let answer = WAITING;
  const show = (changed: Partial<Answer>) => onChange((answer = { ...answer, ...changed }));
  const beganMs = performance.now();
  const startedS = Date.now() / 1000;
  try {
    const reply = await send("/v1/chat/completions", { body: bodyOf(asked), signal });
    show({
      matchId: reply.headers.get("x-sparewatt-match-id"),
      node: reply.headers.get("x-sparewatt-node"),
      region: reply.headers.get("x-sparewatt-region"),
    });
    for await (const line of dataLines(reply)) {
      if (line === "[DONE]") break;
      read(JSON.parse(line) as Chunk, answer, beganMs, show);
    }
    if (answer.state !== "failed") show({ state: "done", ...speedOf(answer, beganMs) });
    if (!answer.matchId) show(await lookedUp(asked.model, startedS));
  } catch (error) {
    if (signal.aborted) show({ state: "stopped" });
    else show({ state: "failed", error: error instanceof ApiError || error instanceof Error ? error.message : String(error) });
  }
}

/** Who wrote it, where the reply's head went out before that was known: after a long wait in line. */
async function lookedUp(model: string, startedS: number): Promise<Partial<Answer>> {
  const { data } = await api<List<MatchLine>>("/v1/matches?limit=20");
  const match = data.findLast((line) => line.model === model && line.created_at >= startedS - 1);
  return match ? { matchId: match.match_id, node: match.attempts.at(-1)?.node ?? null } : {};
}

function read(chunk: Chunk, answer: Answer, beganMs: number, show: (changed: Partial<Answer>) => void): void {
  if (chunk.error) return show({ state: "failed", error: chunk.error.message ?? "The answer broke off." });
  const text = chunk.choices?.[0]?.delta?.content;
  if (text)
    show({ text: answer.text + text, state: "writing", firstTokenMs: answer.firstTokenMs ?? performance.now() - beganMs });
  if (chunk.usage)
    show({ tokens: chunk.usage.completion_tokens ?? null, costUsd: chunk.usage.cost ?? null });
}

function speedOf(answer: Answer, beganMs: number): Partial<Answer> {
  if (answer.firstTokenMs === null || !answer.tokens || answer.tokens < 2) return {};
  const wroteS = (performance.now() - beganMs - answer.firstTokenMs) / 1000;
  return wroteS > 0 ? { tokensPerS: (answer.tokens - 1) / wroteS } : {};
}
