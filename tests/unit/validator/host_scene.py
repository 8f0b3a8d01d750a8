"""Hosts of matches in memory: a chain's state that a test changes, and four validators that hear each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sparewatt.market.chain_records import (
    BondRecord,
    MarketState,
    NodeKeyChange,
    OrderRecord,
    OrderState,
    ProviderRecord,
    RegistryStatus,
    SnapshotRecord,
    ValidatorRecord,
    WeightChange,
    WeightHistory,
)
from sparewatt.market.chain_view import ChainView
from sparewatt.market.match.model import MatchTiming, QuorumCertificate
from sparewatt.market.match.record import AuctionRecord
from sparewatt.market.rule import snapshot_tree
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.protocol.contracts.match import Profile
from sparewatt.protocol.contracts.match_messages import decode_message
from sparewatt.protocol.signing import SigningKey
from sparewatt.protocol.typed_message import struct_hash
from sparewatt.testing.clocks import ManualClock
from sparewatt.validator.match_host import MatchHost
from sparewatt.validator.record_files import RecordFiles
from sparewatt.validator.signed_file import FileBinding, SignedFile
from tests.order_terms import order_terms
from tests.unit.market.match.match_scene import (
    DOMAIN,
    NODE_KEYS,
    ORDER_ID,
    PROVIDERS,
    SPEC,
    VOTE_KEYS,
    bid_for,
    commit_for,
    profile_of,
)

ID = "0x" + ORDER_ID.hex()
OPENED_AT = 10_000
ATTEMPT_S, EVIDENCE_S = 60, 660
PROFILES = tuple(sorted((profile_of(number) for number in range(2)), key=lambda profile: profile.provider))
TERMS = order_terms()


def an_order(order_id: bytes = ORDER_ID, **changes: Any) -> OrderRecord:
    usual = OrderRecord(
        order_id="0x" + order_id.hex(),
        renter="0x" + "ab" * 20,
        state=OrderState.OPEN,
        attempt=0,
        terms=TERMS,
        spec_hash="0x" + struct_hash(SPEC).hex(),
        stake_version=1,
        snapshot_epoch=1,
        expires_at=OPENED_AT + 9_999,
        max_attempts=3,
        created_at=OPENED_AT,
        opened_at={0: OPENED_AT},
    )
    return replace(usual, **changes)


def a_state(*orders: OrderRecord, voters: Sequence[SigningKey] = VOTE_KEYS, bond_uusd: int = 5_000_000) -> MarketState:
    state = MarketState(stake_version=1, totals={1: 10 * len(voters)})
    state.orders = {order.order_id: order for order in orders}
    root = snapshot_tree(PROFILES)[1].root
    state.snapshots[1] = SnapshotRecord(1, "0x" + root.hex(), len(PROFILES), "0x" + "00" * 32, 9_000)
    for provider, key in zip(PROVIDERS, NODE_KEYS, strict=True):
        keys = (NodeKeyChange(key.address, 1),)
        state.providers[provider] = ProviderRecord(
            provider=provider, status=RegistryStatus.ACTIVE, registered_at=1, node_keys=keys
        )
        state.bonds[provider] = BondRecord(free_uusd=bond_uusd)
    for number, key in enumerate(voters):
        operator = f"0x{number + 1:040x}"
        state.validators[operator] = ValidatorRecord(operator=operator, vote_key=key.address, url=f"http://v{number}")
        state.histories[key.address] = WeightHistory(operator, (WeightChange(1, 10),))
    return state


def a_view(state: MarketState) -> ChainView:
    view = ChainView(depth=1, start_block=6)
    view.latest = view.final = state
    return view


def an_event(name: str, order_id: str = ID, **args: Any) -> ChainEvent:
    return ChainEvent(1, 0, b"", b"", 0, contract="any", event=name, args={"order_id": order_id, **args}, unix_s=1)


@dataclass
class Tables:
    known: dict[int, Sequence[Profile]] = field(default_factory=lambda: {1: PROFILES})

    def table_of(self, epoch: int) -> Sequence[Profile] | None:
        return self.known.get(epoch)


@dataclass
class Hosted:
    """One validator's host, and what it wanted done."""

    host: MatchHost
    signed: SignedFile
    records: RecordFiles
    tables: Tables
    sent: list[tuple[Sequence[str], bytes]] = field(default_factory=list)
    submitted: list[QuorumCertificate] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    ended: list[AuctionRecord] = field(default_factory=list)


@dataclass
class HostScene:
    folder: Path
    clock: ManualClock = field(default_factory=ManualClock)
    unix_s: int = OPENED_AT + 1
    timing: MatchTiming = field(default_factory=MatchTiming)
    deliver: Callable[[int, bytes], None] | None = None
    """Where messages go, by default nowhere: the sender and the body."""

    def add(self, number: int = 0, *, tables: Tables | None = None, name: str = "") -> Hosted:
        key = VOTE_KEYS[number]
        folder = self.folder / (name or f"v{number}")
        folder.mkdir(exist_ok=True, mode=0o700)
        signed = SignedFile(
            folder / "signed.wal", binding=FileBinding(31_337, "0x00", str(DOMAIN.verifying_contract), key.address)
        )
        records, tables = RecordFiles(folder / "records"), tables or Tables()

        def send(vote_keys: Sequence[str], path: str, body: bytes) -> None:
            assert path == "/v1/match/messages"
            hosted.sent.append((vote_keys, body))
            if self.deliver is not None:
                self.deliver(number, body)

        submitted: list[QuorumCertificate] = []
        failures: list[Exception] = []
        ended: list[AuctionRecord] = []
        host = MatchHost(
            key=key,
            domain=DOMAIN,
            timing=self.timing,
            signed=signed,
            tables=tables,
            records=records,
            send=send,
            submit=submitted.append,
            fail=failures.append,
            on_ended=ended.append,
            chain_unix_s=lambda: self.unix_s,
            attempt_s=ATTEMPT_S,
            evidence_s=EVIDENCE_S,
            clock=self.clock,
            run_id="run",
        )
        hosted = Hosted(host, signed, records, tables, submitted=submitted, failures=failures, ended=ended)
        return hosted

    def network(self) -> list[Hosted]:
        """Four validators that hear each other a millisecond later."""
        all_hosts = [self.add(number) for number in range(4)]

        def deliver(sender: int, body: bytes) -> None:
            for number, other in enumerate(all_hosts):
                if number != sender:
                    self.clock.call_later(0.001, lambda other=other: take(other, body))  # type: ignore[misc]

        def take(other: Hosted, body: bytes) -> None:
            other.host.receive(decode_message(body))

        self.deliver = deliver
        return all_hosts


def open_order(hosted: Hosted, state: MarketState | None = None) -> MarketState:
    state = state or a_state(an_order())
    hosted.host.on_chain(a_view(state), [an_event("PROVIDER_LOOKUP")], is_whole=False)
    return state


def commit(hosted: Hosted, number: int, **changes: Any) -> int:
    return hosted.host.receive(commit_for(bid_for(number, **changes))).code
