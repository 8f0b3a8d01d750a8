"""A lease with real keys: matched with the first provider, the second one stands in."""

from __future__ import annotations

from dataclasses import replace

from sparewatt.leasing.running.tasks import act_contracts_of
from sparewatt.market.chain_records import MarketState
from sparewatt.protocol.canonical_json import canonical_json
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.protocol.contracts.lease_acts import sign_act
from sparewatt.protocol.link.lease_tasks import ActKind, LeaseAct, ProposedUpdate
from sparewatt.protocol.signing import SigningKey
from tests.unit.leasing.relay.auction import ADDRESSES, NODE_KEYS, OPENED_AT, PROVIDERS, Auction
from tests.unit.market.market_events import accepted, an_event, created, handed_over, of_lease, stream_started

AUCTION = Auction()
ORDER = AUCTION.id_text
WINNER, STAND_IN, LOSER = PROVIDERS
WINNER_KEY, STAND_IN_KEY, LOSER_KEY = (NODE_KEYS[provider] for provider in PROVIDERS)
FOUND = act_contracts_of(ADDRESSES)
assert FOUND is not None
CONTRACTS = FOUND
DETAILS = canonical_json({"started": True, "engine": "podman 4.3.1", "ports": [8080]})


def later(event: ChainEvent) -> ChainEvent:
    return replace(event, unix_s=OPENED_AT + 10)


PLACED = [
    later(accepted(ORDER, providers=(WINNER, STAND_IN))),
    later(created(ORDER, provider=WINNER)),
]
CONFIRMED = later(of_lease("DeploymentConfirmed", ORDER, provider=WINNER, term=1, details_hash="0x" + "33" * 32))
STREAMING = later(stream_started(ORDER, end_at=OPENED_AT + 3_610))
VACATED = later(
    replace(handed_over(WINNER), args={**handed_over(WINNER).args, "lease_id": ORDER, "claim_by": OPENED_AT + 90})
)
CLOSED = later(of_lease("LeaseClosed", ORDER, reason=1))
PAUSED = later(of_lease("LeasePaused", ORDER, reason=4))
NOTICED = later(of_lease("ReclaimNoticed", ORDER, may_close_at=OPENED_AT + 70))


def proposed(spec_hash: str, *, seq: int = 1) -> ChainEvent:
    terms = {"spec_hash": spec_hash, "rate_uusd": 1_000_000, "duration_s": 7_200, "seq": seq}
    return later(an_event("lease_moves.UpdateProposed", lease_id=ORDER, **terms))


def state(*events: ChainEvent) -> MarketState:
    return AUCTION.state(*PLACED, *events)


def act(
    kind: ActKind = ActKind.CONFIRM,
    *,
    key: SigningKey = WINNER_KEY,
    term: int = 1,
    nonce: int = 0,
    seq: int = 0,
    update: ProposedUpdate | None = None,
) -> LeaseAct:
    details = DETAILS if kind is ActKind.CONFIRM else ""
    plain = LeaseAct(
        kind=kind, order_id=ORDER, term=term, signature="", nonce=nonce, deadline=9_999, details=details, seq=seq
    )
    return sign_act(plain, key=key, contracts=CONTRACTS, update=update)
