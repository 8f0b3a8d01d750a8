"""Events as the contracts emit them, for tests of the fold: one block each, ten seconds apart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.protocol.contracts.match import NO_PROVIDER, OrderTerms
from tests.order_terms import order_terms

RENTER, ALICE, BOB, CAROL = ("0x" + digit * 40 for digit in "1abc")
OPERATOR, OTHER_OPERATOR = "0x" + "d" * 40, "0x" + "e" * 40
VOTE_KEY, OTHER_VOTE_KEY, NEW_VOTE_KEY = "0x" + "7" * 40, "0x" + "8" * 40, "0x" + "9" * 40
NODE_KEY, NEW_NODE_KEY = "0x" + "5" * 40, "0x" + "6" * 40
ORDER, OTHER_ORDER = "0x" + "01" * 32, "0x" + "02" * 32
HASH, ZERO = "0x" + "33" * 32, "0x" + "00" * 32
BLOCK_S = 10
START_S = 1_000_000

TERMS = order_terms(
    gpu_models=2,
    min_gpu_class=1,
    min_vram_gb=24,
    latency_value=0,
    standin_s=10,
    reclaim_s=60,
    duration_s=3_600,
    ignore=(CAROL,),
)


def an_event(name: str, **args: Any) -> ChainEvent:
    contract, _, event = name.partition(".")
    return ChainEvent(0, 0, bytes(32), bytes(32), 0, contract, event, args)


def in_blocks(events: Iterable[ChainEvent], *, first: int = 1, per_block: int = 1) -> list[ChainEvent]:
    """With positions and times: `per_block` events in each block."""
    return [
        replace(
            event,
            block_number=first + number // per_block,
            log_index=number % per_block,
            unix_s=START_S + BLOCK_S * (first + number // per_block),
        )
        for number, event in enumerate(events)
    ]


def json_terms(terms: OrderTerms = TERMS) -> list[Any]:
    """As the index stores a struct: hashes as text, arrays as lists."""
    return [
        f"0x{value.hex()}" if isinstance(value, bytes) else list(value) if isinstance(value, tuple) else value
        for value in terms.values()
    ]


def lookup(order_id: str = ORDER, *, attempt: int = 0, **changes: Any) -> ChainEvent:
    args = {
        "order_id": order_id,
        "attempt": attempt,
        "renter": RENTER,
        "policy": json_terms(),
        "spec_hash": HASH,
        "stake_version": 2,
        "snapshot_epoch": 1,
        "expires_at": START_S + 86_400,
        "max_attempts": 3,
        **changes,
    }
    return an_event("deployment_order.PROVIDER_LOOKUP", **args)


def deposited(order_id: str = ORDER, *, deposit: int = 5_000_000) -> ChainEvent:
    args = {"lease_id": order_id, "payer": RENTER, "amount": deposit, "from_owed": 0, "deposit": deposit}
    return an_event("escrow.DepositChanged", **args)


def accepted(order_id: str = ORDER, *, attempt: int = 0, providers: tuple[str, ...] = (ALICE, BOB)) -> ChainEvent:
    chosen = [[provider, 2_000_000 + number] for number, provider in enumerate(providers)]
    task = [order_id, attempt, HASH, 1, HASH, 2, HASH, 5, 0, 1, 0xFFFF]
    return an_event(
        "task_manager.MatchAccepted",
        order_id=order_id,
        attempt=attempt,
        task=task,
        round=1,
        chosen=[*chosen, *[[NO_PROVIDER, 0]] * (3 - len(chosen))],
        signers=[VOTE_KEY, OTHER_VOTE_KEY],
    )


def no_match(order_id: str = ORDER, *, attempt: int = 0, stake_version: int = 2, bid_count: int = 5) -> ChainEvent:
    task = [order_id, attempt, HASH, 1, HASH, stake_version, HASH, bid_count, 0xFFFF, 0xFFFF, 0xFFFF]
    return an_event("task_manager.NoMatch", order_id=order_id, attempt=attempt, task=task, round=0, signers=[VOTE_KEY])


def created(lease_id: str = ORDER, *, provider: str = ALICE, term: int = 1, position: int = 0) -> ChainEvent:
    return an_event(
        "deployment_order.LeaseCreated",
        lease_id=lease_id,
        provider=provider,
        term=term,
        position=position,
        rate_uusd=2_000_000 + position,
        locked_uusd=2_000_000,
        confirm_by=START_S + 100,
    )


def of_lease(name: str, lease_id: str = ORDER, **args: Any) -> ChainEvent:
    return an_event(f"deployment_order.{name}", lease_id=lease_id, **args)


def confirmed(provider: str = ALICE, *, term: int = 1) -> ChainEvent:
    return of_lease("DeploymentConfirmed", provider=provider, term=term, details_hash=HASH)


def stream_started(lease_id: str = ORDER, *, end_at: int = START_S + 3_700) -> ChainEvent:
    return an_event("escrow.StreamStarted", lease_id=lease_id, payee=ALICE, rate_uusd=2_000_000, end_at=end_at)


def settled(*, amount: int, deposit: int) -> ChainEvent:
    return an_event("escrow.Settled", lease_id=ORDER, payee=ALICE, amount=amount, fee=0, deposit=deposit)


def handed_over(provider: str = ALICE, *, reason: int = 16, compensation: int = 2_000_000) -> ChainEvent:
    return of_lease(
        "LeaseHandedOver", provider=provider, term=1, reason=reason, compensation=compensation, claim_by=START_S + 200
    )


def weighed(vote_key: str, *, version: int, weight: int, total: int, operator: str = OPERATOR) -> ChainEvent:
    args = {"operator": operator, "vote_key": vote_key, "version": version, "weight": weight, "total": total}
    return an_event("stake_registry.StakeChanged", **args)


def validator(operator: str = OPERATOR, vote_key: str = VOTE_KEY, url: str = "https://v.example") -> ChainEvent:
    return an_event("stake_registry.ValidatorChanged", operator=operator, vote_key=vote_key, url=url)


def snapshot(epoch: int) -> ChainEvent:
    return an_event("task_manager.SnapshotPosted", epoch=epoch, root=HASH, count=3, inputs_hash=ZERO)


def registered(provider: str = ALICE) -> list[ChainEvent]:
    """In the order in which the registry tells them."""
    name = "provider_registry."
    return [
        an_event(f"{name}NodeKeyChanged", provider=provider, node_key=NODE_KEY),
        an_event(f"{name}ProviderRegistered", provider=provider),
        an_event(f"{name}ClaimsChanged", provider=provider, claims=[1, 2, 1, 3, 24, 2, 2_000_000, HASH]),
        an_event(f"{name}StatusChanged", provider=provider, status=2, reason=ZERO),
        an_event("stake_registry.BondChanged", provider=provider, free=5, locked=0, unbonding=1),
    ]


def a_life() -> list[ChainEvent]:
    """Two orders, a hand-over, a pause, an update, closes: every event that the fold knows."""
    name = "provider_registry."
    return [
        *registered(ALICE),
        *registered(BOB),
        an_event(f"{name}Attested", provider=BOB, auditor=CAROL, topic=0, detail=HASH, expires_at=START_S),
        validator(),
        validator(OTHER_OPERATOR, OTHER_VOTE_KEY, "https://w.example"),
        an_event(
            "stake_registry.StakeMoved",
            operator=OPERATOR,
            stake=0,
            pending=9,
            pending_since=7,
            unbonding=0,
            ready_at=0,
        ),
        weighed(VOTE_KEY, version=1, weight=9, total=9),
        weighed(OTHER_VOTE_KEY, version=2, weight=4, total=13, operator=OTHER_OPERATOR),
        snapshot(1),
        lookup(),
        deposited(),
        lookup(OTHER_ORDER),
        deposited(OTHER_ORDER),
        of_lease("Wired"),
        accepted(providers=(CAROL, ALICE, BOB)),
        an_event("deployment_order.CandidateSkipped", order_id=ORDER, provider=CAROL, suspended=False),
        created(),
        an_event("stake_registry.BondChanged", provider=ALICE, free=3, locked=2, unbonding=1),
        handed_over(),
        of_lease("LeaseUnplaced", expires_at=START_S + 86_400),
        an_event("escrow.Compensated", lease_id=ORDER, amount=2_000_000, deposit=7_000_000),
        created(provider=BOB, term=2, position=2),
        confirmed(BOB, term=2),
        stream_started(),
        settled(amount=10, deposit=6_999_990),
        of_lease("LeasePaused", reason=1),
        an_event("escrow.StreamStopped", lease_id=ORDER),
        of_lease("LeaseResumed", confirm_by=START_S + 900),
        confirmed(BOB, term=2),
        stream_started(),
        an_event(
            "lease_moves.UpdateProposed",
            lease_id=ORDER,
            spec_hash=ZERO,
            rate_uusd=1_500_000,
            duration_s=99,
            seq=4,
        ),
        an_event("lease_moves.LeaseUpdated", lease_id=ORDER, spec_hash=ZERO, rate_uusd=1_500_000, duration_s=99, seq=4),
        of_lease("ReclaimNoticed", may_close_at=START_S + 999),
        no_match(OTHER_ORDER),
        an_event("deployment_order.AttemptExpired", order_id=OTHER_ORDER, attempt=0, final=False),
        an_event("deployment_order.OrderUnmatched", order_id=OTHER_ORDER, attempt=0, reason=98),
        lookup(OTHER_ORDER, attempt=1, stake_version=3),
        weighed(VOTE_KEY, version=3, weight=0, total=4),
        weighed(NEW_VOTE_KEY, version=3, weight=9, total=13),
        validator(vote_key=NEW_VOTE_KEY),
        an_event("stake_registry.Slashed", operator=OTHER_OPERATOR, vote_key=OTHER_VOTE_KEY, amount=2),
        weighed(OTHER_VOTE_KEY, version=4, weight=0, total=9, operator=OTHER_OPERATOR),
        an_event(f"{name}NodeKeyChanged", provider=ALICE, node_key=NEW_NODE_KEY),
        an_event("deployment_order.OrderCancelled", order_id=OTHER_ORDER),
        an_event("escrow.Refunded", lease_id=OTHER_ORDER, payer=RENTER, amount=5_000_000),
        of_lease("LeaseClosed", reason=3),
        an_event("escrow.StreamStopped", lease_id=ORDER),
        an_event("escrow.Refunded", lease_id=ORDER, payer=RENTER, amount=6_999_990),
        snapshot(2),
    ]
