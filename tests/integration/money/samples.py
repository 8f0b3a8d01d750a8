"""People, rules and jobs for tests about money."""

from __future__ import annotations

from typing import Any

from sparewatt.core.ids import AccountId, KeyId, MatchId, ModelId, NodeId
from sparewatt.core.money import NANO_PER_USD, Nano
from sparewatt.ledger.credits import CreditRules
from sparewatt.ledger.model import Amount, ClosedJob, Delivery, JobState, OpenedJob, TokenPrice
from sparewatt.ledger.rules import job_row
from sparewatt.store.accounts import NewAccount
from sparewatt.store.database import Database

NOON_S = 1_700_049_600.0
"""2023-11-15 12:00 UTC."""
ANN, BEN, OLE = AccountId("acc_ann"), AccountId("acc_ben"), AccountId("acc_ole")
HER, HIS = "0x" + "a" * 40, "0x" + "b" * 40
NODE, OTHER_NODE = NodeId("0x" + "11" * 20), NodeId("0x" + "22" * 20)
PRICE = TokenPrice(Nano(20_000_000), Nano(40_000_000))
"""$0.02 and $0.04 per million tokens: 20 and 40 nano-USD a token."""
DOLLAR = Nano(NANO_PER_USD)
RULES = CreditRules(signup=DOLLAR, promo_days=30, grants_per_address_day=3, treasury_daily=Nano(1_000_000))


async def make_people(database: Database) -> None:
    """Ann pays, Ben and Ole own nodes; Ole has no address on the chain."""
    await database.accounts.ensure_account(NewAccount(ANN, "Ann", chain_address=HER, chain_key=b"sealed"))
    await database.accounts.ensure_account(NewAccount(BEN, "Ben", "owner", chain_address=HIS, chain_key=b"sealed"))
    await database.accounts.ensure_account(NewAccount(OLE, "Ole", "owner"))


def delivery(owner: AccountId = BEN, *, prompt: int = 100, written: int = 200, **changes: Any) -> Delivery:
    given: dict[str, Any] = {
        "node_id": NODE,
        "owner": owner,
        "price": PRICE,
        "prompt_tokens": prompt,
        "completion_tokens": written,
        "claimed_tokens": written,
        "outcome": "done",
        "first_token_ms": 12.5,
        "duration_ms": 2_000.0,
    }
    return Delivery(**(given | changes))


def job(
    name: str,
    *deliveries: Delivery,
    promo: int = 0,
    paid: int = 0,
    account: AccountId = ANN,
    key: str = "key_a",
    model: str = "small",
    at: float = NOON_S,
    state: JobState = JobState.DONE,
) -> ClosedJob:
    hold = Amount(Nano(promo), Nano(paid))
    opened = OpenedJob(MatchId(f"match_{name}"), account, KeyId(key), ModelId(model), at, hold, stream=True)
    return ClosedJob(opened, state, at + 2, deliveries)


async def settle(database: Database, *jobs: ClosedJob) -> None:
    assert await database.ledger.post_jobs([job_row(each) for each in jobs], instance="gw_test") == len(jobs)
