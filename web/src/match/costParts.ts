// The parts of a candidate's cost: their labels, their colours, and the cost if some of them had weighed more or less.
// The gateway computes the parts; the page only weighs the recorded ones.
import type { RankedNode } from "@/api/schema";

const LABELS: Record<string, string> = {
  network: "round trip",
  queue: "waiting for a slot",
  cold_load: "loading the model",
  memory: "waiting for memory",
  prefill: "reading the prompt",
  decode: "writing the answer",
  others: "slowing others down",
  price: "price",
  flakiness: "failures before",
  suspect: "silent or failed lately",
  jitter: "random jitter",
};

/** Factors by part; a part without one counts once. */
export type Weights = Record<string, number>;

export function partLabel(part: string): string {
  return LABELS[part] ?? part;
}

export function partColour(part: string): string {
  return part in LABELS ? `var(--part-${part})` : "var(--muted)";
}

export function partNames(candidates: RankedNode[]): string[] {
  return [...new Set(candidates.flatMap(({ parts }) => Object.keys(parts)))];
}

export function weightedPart({ parts }: RankedNode, part: string, weights: Weights): number {
  return (parts[part] ?? 0) * (weights[part] ?? 1);
}

export function weightedCost(candidate: RankedNode, weights: Weights): number {
  return Object.keys(candidate.parts).reduce((sum, part) => sum + weightedPart(candidate, part, weights), 0);
}

/** Best first: the lowest cost, or the highest score if the ranking scores instead of predicting seconds. */
export function rankCandidates(candidates: RankedNode[], weights: Weights): RankedNode[] {
  const sign = candidates.some(({ score }) => score !== null) ? -1 : 1;
  return [...candidates].sort((a, b) => sign * (weightedCost(a, weights) - weightedCost(b, weights)));
}
