// A match of four validators and three bids, for tests: one bid was too dear, and one validator was not heard.
import type { LeaseMatch, MarketOrder, MatchBid, MatchScore, MatchVoter } from "../src/api/schema.ts";

export const KEYS = ["0xa1", "0xb2", "0xc3", "0xd4"] as const;
export const DIGEST = `0x${"ab".repeat(32)}`;
export const OTHER_DIGEST = `0x${"cd".repeat(32)}`;

export function score(price: number, changes: Partial<MatchScore> = {}): MatchScore {
  return { score: String(Math.floor(((price + 20_000) * 1e6) / 980_100)), price_uusd: price, latency_uusd: 20_000, rtt_ms: 40, p_ok_ppm: 980_100, uptime_ppm: 990_000, reputation_ppm: 990_000, ...changes };
}

export function bid(provider: string, changes: Partial<MatchBid> = {}): MatchBid {
  return { provider, bid_id: `${provider}01`, state: "eligible", status: 0, reason: null, price_usd: "1", score: null, rank: null, committed_at: [...KEYS], revealed_at: [...KEYS], ...changes };
}

function voter(vote_key: string): MatchVoter {
  return { vote_key, operator: `${vote_key}00`, weight_usd: "100", leads: [], heard: true, problem: null };
}

export function marketOrder(changes: Partial<MarketOrder> = {}): MarketOrder {
  const hash = `0x${"11".repeat(32)}`;
  return {
    id: hash,
    renter: "0x1",
    state: "open",
    reason: null,
    attempt: 0,
    max_attempts: 3,
    created_at: 1_000,
    opened_at: 1_000,
    next_attempt_at: null,
    expires_at: 9_000,
    gpu_units: 1,
    gpu_models: 0,
    gpu_names: [],
    min_vram_gb: 0,
    max_hourly_usd: "2",
    duration_s: 3_600,
    commit_ms: 800,
    reveal_ms: 400,
    only: [],
    deposit_usd: "2",
    charged_usd: "0",
    refunded_usd: null,
    spec_hash: hash,
    policy_hash: hash,
    stake_version: 4,
    snapshot_epoch: 1,
    candidates: [],
    certificate: null,
    failed: [],
    lease: null,
    final: true,
    ...changes,
  };
}

export function leaseMatch(changes: Partial<LeaseMatch> = {}): LeaseMatch {
  const bids = [
    bid("0xp1", { state: "won", score: score(900_000), rank: 1 }),
    bid("0xp2", { state: "standby", score: score(1_000_000), rank: 2 }),
    bid("0xp3", { state: "rejected", status: 1, reason: "OVER_MAX_PRICE", price_usd: "9" }),
  ];
  const ids = bids.map(({ bid_id }) => bid_id as string);
  return {
    object: "lease_match",
    order: {
      id: `0x${"11".repeat(32)}`,
      renter: "0x1",
      state: "matched",
      reason: null,
      attempt: 0,
      max_attempts: 3,
      opened_at: 1_000,
      expires_at: 9_000,
      max_hourly_usd: "2",
      gpu_units: 1,
      duration_s: 3_600,
      commit_ms: 800,
      reveal_ms: 400,
      stake_version: 4,
      snapshot_epoch: 1,
      refunded: false,
    },
    attempt: 0,
    attempts: [0],
    version: 9,
    phase: { name: "matched", round: 0, ends_in_ms: null },
    counts: { asked: 4, bids: 3, declines: 1, certified: 3, revealed: 3, eligible: 2, by_reason: { OVER_MAX_PRICE: 1, BUSY: 1 } },
    why: null,
    relaxations: [],
    bids,
    declines: [{ provider: "0xp4", code: 64, reason: "BUSY" }],
    refusals: [],
    lists: KEYS.slice(0, 3).flatMap((validator) => [
      { kind: "commit" as const, validator, bid_ids: ids },
      { kind: "reveal" as const, validator, bid_ids: ids },
    ]),
    votes: KEYS.slice(0, 3).map((validator) => ({ validator, round: 0, task_digest: DIGEST, agrees: true })),
    voters: KEYS.map(voter),
    certificate: {
      task_digest: DIGEST,
      round: 0,
      bid_count: 3,
      bid_root: `0x${"22".repeat(32)}`,
      candidates: [{ provider: "0xp1", position: 0, price_usd: "0.9", pay_usd: "1" }],
      pay_usd: "1",
      signers: [...KEYS.slice(0, 3)],
      tx: null,
      accepted_at: 1_002,
    },
    record: true,
    ...changes,
  };
}
