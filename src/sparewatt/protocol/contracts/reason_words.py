"""The market's reason codes in words: why an order has no provider, why a lease has ended, paused or moved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sparewatt.protocol.contracts.reasons import CloseReason, HandOverReason

Actor = Literal["renter", "provider", "validators", "network"]
"""Who did it. `network`: anyone may, once the contract's condition holds."""


@dataclass(frozen=True, slots=True)
class ReasonWords:
    """Who, and why."""

    who: Actor
    why: str


CLOSE_WORDS: dict[CloseReason, ReasonWords] = {
    CloseReason.RENTER: ReasonWords("renter", "the renter closed it"),
    CloseReason.DURATION: ReasonWords("network", "the agreed time was used up"),
    CloseReason.PROVIDER_RECLAIM: ReasonWords("provider", "the provider took its machine back after its notice"),
    CloseReason.EMPTY: ReasonWords("network", "the deposit was used up and nobody added to it within the grace"),
    CloseReason.NO_PROVIDER: ReasonWords("network", "its provider left and no other took it over"),
}
PAUSE_WORDS: dict[CloseReason, ReasonWords] = {
    CloseReason.RENTER: ReasonWords("renter", "the renter paused it"),
    CloseReason.EMPTY: ReasonWords("network", "the deposit was used up"),
}
HAND_OVER_WORDS: dict[HandOverReason, ReasonWords] = {
    HandOverReason.NO_START: ReasonWords("network", "the provider did not start it in time"),
    HandOverReason.DOWN: ReasonWords("validators", "the validators heard nothing of the provider any more"),
    HandOverReason.RESIGNED: ReasonWords("provider", "the provider resigned"),
}

_BIDS = {
    "OVER_MAX_PRICE": "asked more than the highest price",
    "LATE": "came after the window had closed",
    "DUPLICATE": "was the second of its provider",
    "BAD_SIGNATURE": "was not signed by the provider's key",
    "WRONG_DOMAIN": "was signed for another chain or contract",
    "WRONG_ORDER_OR_ATTEMPT": "was for another order or attempt",
    "UNBONDED": "was not covered by a free bond",
    "FULL": "came when there were too many",
    "OUT_OF_RANGE": "had a number out of range",
    "UNCERTIFIED": "was listed by too few validators",
    "UNREVEALED": "was not revealed",
    "REVEAL_MISMATCH": "was revealed with other content",
    "TERMS": "did not cover what was ordered",
}
_PROVIDERS = {
    "COUNTRY": "is in another country",
    "TIER": "is of another tier",
    "GPU_MODEL": "has no such GPU",
    "GPU_CLASS": "has a weaker GPU",
    "VRAM": "has too little GPU memory",
    "GPU_UNITS": "has too few GPUs",
    "COMPLIANCE": "has no attestation of a standard that the order asks for",
    "UPTIME": "has less uptime than the order asks for",
    "REPUTATION": "has less reputation than the order asks for",
    "NOT_IN_ONLY": "is not among those that the order names",
    "IGNORED": "was ruled out by the renter",
    "NOT_REGISTERED": "is not registered",
    "NOT_ACTIVE": "is not active",
    "NO_BOND": "has less free bond than an hour of the highest price",
    "NOT_IN_SNAPSHOT": "is not in the validators' table yet",
    "BEHIND_CHAIN": "was behind the chain",
    "FAILED_BEFORE": "failed in this order before",
    "BUSY": "was busy",
    "IMAGE": "refused the image",
    "TENANT": "refused the renter",
    "DURATION": "refused the duration",
    "PRICE": "asked more than the highest price",
    "PAUSED": "was paused",
    "OTHER": "does not offer such a lease",
}
_MANY = {"is": "are", "was": "were", "has": "have", "does": "do"}


def count_in_words(reason: str, count: int) -> str:
    """A clause with its subject: `3 bids were not revealed`. A code without words is said by its name."""
    noun, said = ("bid", _BIDS[reason]) if reason in _BIDS else ("provider", _PROVIDERS.get(reason))
    if said is None:
        return f"{count} {reason}"
    verb, rest = said.split(" ", 1) if " " in said else (said, "")
    verb = verb if count == 1 else _MANY.get(verb, verb)
    return f"{count} {noun}{'' if count == 1 else 's'} {f'{verb} {rest}'.rstrip()}"
