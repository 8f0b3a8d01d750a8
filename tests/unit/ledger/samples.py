"""Jobs, deliveries and prices for tests of the books."""

from __future__ import annotations

from typing import Any

from sparewatt.core.ids import AccountId, KeyId, MatchId, ModelId, NodeId
from sparewatt.core.money import Nano
from sparewatt.ledger.model import Amount, ClosedJob, Delivery, JobState, OpenedJob, TokenPrice

PAYER, OWNER, OTHER_OWNER = AccountId("acc_payer"), AccountId("acc_owner"), AccountId("acc_other_owner")
KEY = KeyId("key_a")
NODE, OTHER_NODE = NodeId("0x" + "11" * 20), NodeId("0x" + "22" * 20)
PRICE = TokenPrice(Nano(20_000_000), Nano(40_000_000))
"""$0.02 and $0.04 per million tokens: 20 and 40 nano-USD a token."""
NOW_S = 1_700_000_000.0


def amount(*, promo: int = 0, paid: int = 0) -> Amount:
    return Amount(Nano(promo), Nano(paid))


def delivery(prompt: int = 10, written: int = 20, **changes: Any) -> Delivery:
    given: dict[str, Any] = {
        "node_id": NODE,
        "owner": OWNER,
        "price": PRICE,
        "prompt_tokens": prompt,
        "completion_tokens": written,
        "claimed_tokens": written,
        "outcome": "done",
        "first_token_ms": 12.5,
        "duration_ms": 80.0,
    }
    return Delivery(**(given | changes))


def opened(name: str = "1", **changes: Any) -> OpenedJob:
    given: dict[str, Any] = {
        "id": MatchId(f"match_{name}"),
        "account": PAYER,
        "key": KEY,
        "model": ModelId("stub"),
        "opened_unix_s": NOW_S,
        "hold": amount(paid=100_000),
    }
    return OpenedJob(**(given | changes))


def closed(
    name: str = "1", *deliveries: Delivery, state: JobState = JobState.DONE, reason: str | None = None, **changes: Any
) -> ClosedJob:
    job = opened(name, **changes)
    return ClosedJob(job, state, job.opened_unix_s + 1, deliveries, reason)
