// A bid's score and its three terms, and the ranking computed anew from the bids that validators revealed. Whole µUSD per
// hour as in the protocol: score = (price + latency) · 10⁶ / p_ok, rounded down; the lowest wins.
import type { LeaseMatch, MatchBid, MatchScore } from "../api/schema.ts";

const PPM = 1_000_000n;
const UUSD_PER_USD = 1_000_000;

export type ScoreTerm = "price" | "latency" | "risk";
export const SCORE_TERMS: ScoreTerm[] = ["price", "latency", "risk"];
const LABELS: Record<ScoreTerm, string> = { price: "price", latency: "distance", risk: "risk of failing" };
/** Each term has the colour of the same part of a request's cost. */
const PARTS: Record<ScoreTerm, string> = { price: "price", latency: "network", risk: "flakiness" };

export function termLabel(term: ScoreTerm): string {
  return LABELS[term];
}

export function termColour(term: ScoreTerm): string {
  return `var(--part-${PARTS[term]})`;
}

/** In dollars per hour; they add up to the score. */
export function scoreTerms({ score, price_uusd, latency_uusd }: MatchScore): Record<ScoreTerm, number> {
  const total = Number(score) / UUSD_PER_USD;
  const [price, latency] = [price_uusd / UUSD_PER_USD, latency_uusd / UUSD_PER_USD];
  return { price, latency, risk: Math.max(0, total - price - latency) };
}

/** Whether the order says a place to be near to; without one the distance is neither known nor counted. */
export function hasDistance({ rtt_ms, latency_uusd }: MatchScore): boolean {
  return rtt_ms > 0 || latency_uusd > 0;
}

export function scoreUsd({ score }: MatchScore): number {
  return Number(score) / UUSD_PER_USD;
}

/** The protocol's score of a bid's numbers. */
export function recomputedScore({ price_uusd, latency_uusd, uptime_ppm, reputation_ppm }: MatchScore): bigint {
  const product = (BigInt(uptime_ppm) * BigInt(reputation_ppm)) / PPM;
  const pOk = product > 1n ? product : 1n;
  return ((BigInt(price_uusd) + BigInt(latency_uusd)) * PPM) / pOk;
}

export interface RankingCheck {
  bids: number;
  /** One sentence for each thing that is not as it should be. */
  faults: string[];
}

/** Compute scores and order anew. Bids with one score are ranked by a hash, which is not computed here. */
export function checkRanking({ bids }: Pick<LeaseMatch, "bids">): RankingCheck {
  const scored = bids.filter((bid): bid is MatchBid & { score: MatchScore } => bid.score !== null);
  const faults = scored
    .filter(({ score }) => recomputedScore(score).toString() !== score.score)
    .map(({ provider, score }) => `The score of ${provider} is ${recomputedScore(score)}, not ${score.score}.`);
  const ranked = scored.filter(({ rank }) => rank !== null).sort((a, b) => (a.rank ?? 0) - (b.rank ?? 0));
  ranked.forEach((bid, at) => {
    const better = ranked[at - 1];
    if (better && recomputedScore(better.score) > recomputedScore(bid.score)) faults.push(`${bid.provider} has a lower score than ${better.provider}, which is ranked before it.`);
  });
  return { bids: scored.length, faults };
}
