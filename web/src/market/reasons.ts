// The market's reason codes in words: why a bid, a vote or an order got no further. The names are the protocol's.

export const MEANINGS: Record<string, string> = {
  OVER_MAX_PRICE: "asked more than the order's highest price",
  COUNTRY: "in another country",
  TIER: "of another tier",
  GPU_MODEL: "no such GPU",
  GPU_CLASS: "a weaker GPU",
  VRAM: "too little GPU memory",
  GPU_UNITS: "too few GPUs",
  COMPLIANCE: "lacks an attested standard",
  UPTIME: "uptime below the order's",
  REPUTATION: "reputation below the order's",
  NOT_IN_ONLY: "not one of the providers that the order names",
  IGNORED: "ruled out by the renter",
  LATE: "came after the window had closed",
  DUPLICATE: "a second bid of one provider",
  BAD_SIGNATURE: "the signature is not of the provider's key",
  WRONG_DOMAIN: "signed for another chain or contract",
  WRONG_ORDER_OR_ATTEMPT: "for another order or attempt",
  NOT_REGISTERED: "not registered",
  NOT_ACTIVE: "not active",
  NOT_IN_SNAPSHOT: "not in the snapshot of providers",
  UNBONDED: "the free bond does not cover the bid",
  FULL: "too many bids",
  OUT_OF_RANGE: "a number out of range",
  UNCERTIFIED: "too few validators had listed it",
  UNREVEALED: "never revealed",
  REVEAL_MISMATCH: "revealed something else than committed",
  BEHIND_CHAIN: "the node is behind the chain",
  FAILED_BEFORE: "failed in this order before",
  TERMS: "does not cover what was ordered",
  STALE_CHALLENGE: "answered an old challenge",
  BUSY: "busy",
  IMAGE: "refuses the image",
  TENANT: "refuses the renter",
  DURATION: "refuses the duration",
  PRICE: "its price is above the order's highest",
  PAUSED: "paused by its owner",
  OTHER: "does not offer such a lease",
  NO_BOND: "its free bond is below an hour of the highest price",
  NO_BIDS: "nobody bid",
  NONE_ELIGIBLE: "no bid was eligible",
  NO_QUORUM: "the validators reached no quorum in time",
  NONE_PLACEABLE: "no candidate could be placed",
  EXPIRED: "expired",
  CANCELLED: "cancelled by the renter",
  MISSING_BID: "the proposal leaves out a bid",
  UNCERTIFIED_BID: "the proposal has a bid that no quorum listed",
  WRONG_RESULT: "recomputing gives another result",
  WRONG_CONTEXT: "the chain says something else of the order",
  NOT_LEADER: "not from this round's leader",
};

/** A code of a newer gateway is shown by its own name. */
export function reasonText(code: string): string {
  return MEANINGS[code] ?? code.toLowerCase().replaceAll("_", " ");
}

/** Most frequent first. */
export function rankReasons(counts: Record<string, number>): [reason: string, times: number][] {
  return Object.entries(counts).sort(([a, x], [b, y]) => y - x || a.localeCompare(b));
}
