// Weights of validators: shares of the stake, and whether some of them are a quorum. Exact, in µUSD: a quorum is strictly
// more than two thirds.

const DECIMALS = 6;

/** A decimal string of dollars as µUSD. */
export function uusd(amount: string): bigint {
  const [whole = "0", fraction = ""] = amount.split(".");
  return BigInt(whole + fraction.slice(0, DECIMALS).padEnd(DECIMALS, "0"));
}

export function isQuorum(weight: bigint, total: bigint): boolean {
  return 3n * weight > 2n * total;
}

/** Of a share that was rounded to four digits: what the chain accepted had a quorum, so it is only shown. */
export function isQuorumShare(share: number): boolean {
  return share > 0.6666;
}

export interface Weighted {
  vote_key: string;
  weight_usd: string;
}

export interface VoteCount {
  /** From 0 to 1. */
  share: number;
  isQuorum: boolean;
}

/** What the votes of these keys are worth; each counts once, strangers for nothing. */
export function countVotes(signers: Iterable<string>, voters: Weighted[]): VoteCount {
  const keys = new Set(signers);
  const total = voters.reduce((sum, { weight_usd }) => sum + uusd(weight_usd), 0n);
  const weight = voters.reduce((sum, { vote_key, weight_usd }) => sum + (keys.has(vote_key) ? uusd(weight_usd) : 0n), 0n);
  return { share: shareOf(weight, total), isQuorum: isQuorum(weight, total) };
}

export function shareOf(weight: bigint, total: bigint): number {
  return total === 0n ? 0 : Number((weight * 1_000_000n) / total) / 1_000_000;
}
