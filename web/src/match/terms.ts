// The terms of a score: their names, their colours, and what the sliders do with them. No term is computed here: a
// weight only counts a recorded term more or less.
import type { Candidate } from "@/api/types";

export const TERM_WORDS: Record<string, string> = {
  network: "round trip",
  queue: "waiting for a place",
  cold_load: "loading the model",
  memory: "waiting for memory",
  prefill: "reading the prompt",
  decode: "writing the answer",
  others: "slowing others down",
  scarcity: "keeping rare cards free",
  price: "price",
  flakiness: "failures before",
  suspect: "silent or failed lately",
  jitter: "chance",
};

export function colourOf(term: string): string {
  return term in TERM_WORDS ? `var(--term-${term})` : "var(--muted)";
}

export function termsOf(candidates: Candidate[]): string[] {
  return [...new Set(candidates.flatMap((one) => Object.keys(one.parts)))];
}

export type Weights = Record<string, number>;

export function weighed(candidate: Candidate, weights: Weights): number {
  return Object.entries(candidate.parts).reduce((sum, [term, part]) => sum + part * (weights[term] ?? 1), 0);
}

/** Best first: the least cost, or for a policy that scores, the highest score. */
export function ranked(candidates: Candidate[], weights: Weights): Candidate[] {
  const sign = candidates.some((one) => one.cost_s !== null) ? 1 : signOf(candidates);
  return [...candidates].sort((a, b) => sign * (weighed(a, weights) - weighed(b, weights)));
}

function signOf(candidates: Candidate[]): number {
  const first = candidates[0];
  return first && first.score !== null && Math.sign(weighed(first, {})) === Math.sign(first.score) ? -1 : 1;
}
