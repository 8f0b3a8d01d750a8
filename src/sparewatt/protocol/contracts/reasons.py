"""Reason codes of the market: why a bid, a vote, an order or a lease got no further. Numbers are never reused.

`BidStatus` is certified in the Merkle root of an attempt and the two of a lease are on chain. The others are what one
validator or provider says; a replay shows them with who said it.
"""

from __future__ import annotations

from enum import IntEnum


class BidStatus(IntEnum):
    """0, or the code of the first check that failed."""

    ELIGIBLE = 0
    OVER_MAX_PRICE = 1
    COUNTRY = 2
    TIER = 3
    GPU_MODEL = 4
    GPU_CLASS = 5
    VRAM = 6
    GPU_UNITS = 7
    COMPLIANCE = 8
    UPTIME = 9
    REPUTATION = 10
    NOT_IN_ONLY = 11
    IGNORED = 12


class MessageRefusal(IntEnum):
    """Why a validator did not take a message."""

    LATE = 32
    DUPLICATE = 33
    BAD_SIGNATURE = 34
    WRONG_DOMAIN = 35
    """Another chain, contract or version of the rule."""
    WRONG_ORDER_OR_ATTEMPT = 36
    NOT_REGISTERED = 37
    NOT_ACTIVE = 38
    NOT_IN_SNAPSHOT = 39
    UNBONDED = 40
    FULL = 41
    OUT_OF_RANGE = 42
    UNCERTIFIED = 43
    UNREVEALED = 44
    REVEAL_MISMATCH = 45
    BEHIND_CHAIN = 46
    FAILED_BEFORE = 47
    """The provider paid compensation, or was skipped for want of a bond, in this order."""
    TERMS = 48
    """They do not hash to the bid's, or do not cover the specification."""
    STALE_CHALLENGE = 49


class DeclineReason(IntEnum):
    """Why a provider does not bid."""

    BUSY = 64
    IMAGE = 65
    TENANT = 66
    DURATION = 67
    PRICE = 68
    PAUSED = 69
    OTHER = 70


class OrderOutcome(IntEnum):
    """Why an order has no lease."""

    NO_BIDS = 96
    NONE_ELIGIBLE = 97
    NO_QUORUM = 98
    NONE_PLACEABLE = 99
    EXPIRED = 100
    CANCELLED = 101


class CloseReason(IntEnum):
    """Why a lease was closed."""

    RENTER = 1
    DURATION = 2
    PROVIDER_RECLAIM = 3
    EMPTY = 4
    NO_PROVIDER = 5


class HandOverReason(IntEnum):
    """Why a provider lost a lease."""

    NO_START = 16
    DOWN = 17
    RESIGNED = 18


class VoteRefusal(IntEnum):
    """Why a validator does not vote for a proposal."""

    MISSING_BID = 128
    UNCERTIFIED_BID = 129
    WRONG_RESULT = 130
    WRONG_CONTEXT = 131
    NOT_LEADER = 132
