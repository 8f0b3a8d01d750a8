"""The heartbeats that one validator hears: challenges, when a node and each lease was last heard, and uptime. Pure.

Uptime is the beats accepted of the beats due in the last 30 days, counted as time: a beat stands for the time since the
one before it if at most one beat was missed in between, else for a single beat. So a late timer costs a node nothing,
and more beats than are due gain nothing. Due is the time in which the provider was ACTIVE and this validator ran.
Downtime of the validator itself is never held against a node.

A heartbeat shows that the agent lives and says that it holds a lease; nothing else in it is believed. Heard times are
chain time, as `ChainClock` runs it on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sparewatt.market.chain_records import MarketState, ProviderRecord, RegistryStatus
from sparewatt.protocol.contracts.match import Heartbeat, held_term
from sparewatt.protocol.contracts.message_ranges import HELD_MAX, PPM
from sparewatt.protocol.contracts.reasons import MessageRefusal
from sparewatt.protocol.contracts.snapshot_messages import SignedHeartbeat
from sparewatt.protocol.signing import BadSignature, Domain, recover_address
from sparewatt.protocol.typed_message import message_digest
from sparewatt.trust.lease_record import DAY_S

NO_CHALLENGE = bytes(32)
"""In a heartbeat: the node only asks for a challenge."""
UPTIME_DAYS = 30
DUE_BEATS_MIN = 10
"""Before that many beats were due, a provider has no uptime here, and the newcomer's prior stands."""
GAP_HALF_BEATS = 5
"""A beat stands for the time since the last one up to this many halves of a beat: one may be missed, with room."""
CHALLENGE_BEATS = 4
"""How long a challenge can be answered: a signed answer that is held back delays a hand-over by no more."""
STALL_BEATS = 5
"""If the clock jumps by more between two ticks, this validator did not run meanwhile."""


class ChainClock:
    """Chain time as it runs on by the machine's own clock: the newest block's time and the seconds since it came."""

    def __init__(self) -> None:
        self._block_s = 0
        self._seen_ms = 0

    def see_block(self, unix_s: int, *, now_ms: int) -> None:
        """Of the newest block. Seeing the same block again does not start its seconds anew."""
        if unix_s != self._block_s:
            self._block_s, self._seen_ms = unix_s, now_ms

    def unix_s(self, now_ms: int) -> int:
        return self._block_s + max(0, now_ms - self._seen_ms) // 1_000


@dataclass(frozen=True, slots=True)
class BeatReply:
    code: int
    """0, or a `MessageRefusal`."""
    challenge: bytes
    """What the next heartbeat has to answer; zeros for one that is not signed by a provider's node key."""
    seq: int = 0
    """The highest that was accepted: a node whose clock was set back goes on above it."""


@dataclass(slots=True)
class _DayOfBeats:
    heard_ms: int = 0
    due_ms: int = 0


@dataclass(slots=True)
class _Node:
    """One provider. Times with `run` are of the validator's running time, which stands while it does not run."""

    record: ProviderRecord | None = None
    """None while the chain does not have it."""
    node_key: str | None = None
    is_active: bool = False
    challenge: bytes = NO_CHALLENGE
    challenge_run: int = 0
    seq: int = -1
    heard_at: int | None = None
    block_number: int = 0
    beat_run: int = 0
    """The end of the time that the last beat stood for."""
    due_run: int = 0
    """Up to here the time that was due is in the days."""
    held: dict[bytes, int] = field(default_factory=dict)
    """When each term of a lease was last named; the newest last."""
    days: dict[int, _DayOfBeats] = field(default_factory=dict)


class HeartbeatBook:
    """Bounded by the providers that ever registered: a stranger's heartbeat leaves nothing behind."""

    def __init__(
        self, *, validator: str, domain: Domain, beat_ms: int, now_ms: int, saved: Mapping[str, Any] | None = None
    ) -> None:
        """`validator`: this one's vote key; `saved`: what `save` gave before a restart."""
        self._validator = validator.lower()
        self._domain = domain
        self._beat_ms = beat_ms
        self._gap_ms = GAP_HALF_BEATS * beat_ms // 2
        self._now_ms = now_ms
        self._run_ms = 0
        self._day = 0
        self._nodes: dict[str, _Node] = {}
        for provider, written in (saved or {}).get("providers", {}).items():
            self._nodes[provider] = _read_node(written)

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def running_ms(self) -> int:
        """How long this process has been hearing, without the time in which it stood still."""
        return self._run_ms

    def follow(self, state: MarketState, *, now_ms: int) -> None:
        """After each change of the chain's newest state: who is registered, by which key, and ACTIVE.

        A provider that the state does not have keeps its record: the events may still be on their way, after a start
        or a deep reorg.
        """
        self._run_on(now_ms)
        for provider, known in self._nodes.items():
            if known.record is not None and provider not in state.providers:
                self._count_due(known)
                known.record, known.is_active = None, False
        for provider, record in state.providers.items():
            node = self._nodes.get(provider)
            if node is None:
                node = self._nodes[provider] = _Node()
            if node.record is not record:
                self._change(node, record)

    def tick(self, now_ms: int, *, unix_s: int) -> None:
        """At least once per beat: a longer silence of the caller counts as time in which this validator did not run."""
        self._run_on(now_ms)
        day = unix_s // DAY_S
        if day <= self._day:
            return
        for node in self._nodes.values():
            self._count_due(node)
            for old in [each for each in node.days if each <= day - UPTIME_DAYS]:
                del node.days[old]
        self._day = day

    def receive(self, beat: SignedHeartbeat, *, now_ms: int, unix_s: int, fresh: bytes) -> BeatReply:
        """`fresh`: 32 random bytes, which become the next challenge if one is needed."""
        self.tick(now_ms, unix_s=unix_s)
        heartbeat = beat.heartbeat
        node = self._nodes.get(heartbeat.provider.lower())
        if node is None or node.record is None or node.node_key is None:
            return BeatReply(MessageRefusal.NOT_REGISTERED, NO_CHALLENGE)
        if heartbeat.validator.lower() != self._validator:
            return BeatReply(MessageRefusal.WRONG_DOMAIN, NO_CHALLENGE)
        if not self._is_signed(beat, node.node_key):
            return BeatReply(MessageRefusal.BAD_SIGNATURE, NO_CHALLENGE)
        code = self._judged(node, heartbeat)
        if code == 0:
            self._hear(node, heartbeat, unix_s)
        if code == 0 or not self._can_answer(node):
            node.challenge, node.challenge_run = fresh, self._run_ms
        return BeatReply(0 if heartbeat.challenge == NO_CHALLENGE else code, node.challenge, max(0, node.seq))

    def heard_at(self, provider: str) -> int | None:
        """Chain time of the last accepted heartbeat, in seconds. None: never."""
        node = self._nodes.get(provider.lower())
        return None if node is None else node.heard_at

    def held_at(self, provider: str, lease_id: str, term: int) -> int | None:
        """When the provider last said that it holds this term of the lease. None: never."""
        node = self._nodes.get(provider.lower())
        return None if node is None else node.held.get(held_term(bytes.fromhex(lease_id[2:]), term))

    def block_number(self, provider: str) -> int | None:
        """The height of the node's chain, by its own word."""
        node = self._nodes.get(provider.lower())
        return None if node is None else node.block_number

    def uptime_ppm(self, provider: str) -> int | None:
        """None before DUE_BEATS_MIN beats were due."""
        node = self._nodes.get(provider.lower())
        if node is None:
            return None
        self._count_due(node)
        days = [counted for day, counted in node.days.items() if day > self._day - UPTIME_DAYS]
        due_ms = sum(day.due_ms for day in days) - self._open_ms(node)
        if due_ms < DUE_BEATS_MIN * self._beat_ms:
            return None
        return PPM * min(due_ms, sum(day.heard_ms for day in days)) // due_ms

    def save(self) -> dict[str, Any]:
        """JSON values only. Challenges are not in it: what was asked before a restart cannot be answered after it."""
        for node in self._nodes.values():
            self._count_due(node)
        return {"providers": {provider: _write_node(node) for provider, node in self._nodes.items()}}

    def _run_on(self, now_ms: int) -> None:
        passed = max(0, now_ms - self._now_ms)
        self._now_ms = max(self._now_ms, now_ms)
        if passed <= STALL_BEATS * self._beat_ms:
            self._run_ms += passed

    def _change(self, node: _Node, record: ProviderRecord) -> None:
        self._count_due(node)
        is_active = record.status is RegistryStatus.ACTIVE
        if is_active and not node.is_active:
            node.beat_run = self._run_ms
        key = None if record.status is RegistryStatus.LEFT else record.node_key
        if key != node.node_key:
            # What another key has signed cannot be played again, and its counter may start anew.
            node.node_key, node.seq, node.challenge = key, -1, NO_CHALLENGE
        node.record, node.is_active = record, is_active

    def _is_signed(self, beat: SignedHeartbeat, node_key: str) -> bool:
        try:
            signer = recover_address(message_digest(self._domain, beat.heartbeat), beat.signature)
        except BadSignature:
            return False
        return signer == node_key

    def _judged(self, node: _Node, heartbeat: Heartbeat) -> int:
        if heartbeat.challenge == NO_CHALLENGE:
            return MessageRefusal.STALE_CHALLENGE
        if heartbeat.seq <= node.seq:
            return MessageRefusal.DUPLICATE
        if heartbeat.challenge != node.challenge or not self._can_answer(node):
            return MessageRefusal.STALE_CHALLENGE
        return 0

    def _can_answer(self, node: _Node) -> bool:
        age_ms = self._run_ms - node.challenge_run
        return node.challenge != NO_CHALLENGE and age_ms <= CHALLENGE_BEATS * self._beat_ms

    def _hear(self, node: _Node, heartbeat: Heartbeat, unix_s: int) -> None:
        node.seq, node.block_number = heartbeat.seq, heartbeat.block_number
        node.heard_at = max(node.heard_at or 0, unix_s)
        for term in heartbeat.held:
            node.held.pop(term, None)
            node.held[term] = node.heard_at
        for term in list(node.held)[:-HELD_MAX]:
            del node.held[term]
        if node.is_active:
            self._count_due(node)
            gap_ms = self._run_ms - node.beat_run
            self._today(node).heard_ms += gap_ms if gap_ms <= self._gap_ms else self._beat_ms
        node.beat_run = self._run_ms

    def _count_due(self, node: _Node) -> None:
        if node.is_active and self._run_ms > node.due_run:
            self._today(node).due_ms += self._run_ms - node.due_run
        node.due_run = self._run_ms

    def _open_ms(self, node: _Node) -> int:
        """Time that is due, but the beat that stands for it may still come."""
        gap_ms = self._run_ms - node.beat_run
        return gap_ms if node.is_active and gap_ms <= self._gap_ms else 0

    def _today(self, node: _Node) -> _DayOfBeats:
        return node.days.setdefault(self._day, _DayOfBeats())


def _write_node(node: _Node) -> dict[str, Any]:
    return {
        "node_key": node.node_key,
        "seq": node.seq,
        "heard_at": node.heard_at,
        "held": {"0x" + term.hex(): heard_at for term, heard_at in node.held.items()},
        "days": {str(day): [counted.heard_ms, counted.due_ms] for day, counted in node.days.items()},
    }


def _read_node(written: Mapping[str, Any]) -> _Node:
    return _Node(
        node_key=written["node_key"],
        seq=written["seq"],
        heard_at=written["heard_at"],
        held={bytes.fromhex(term[2:]): heard_at for term, heard_at in written["held"].items()},
        days={int(day): _DayOfBeats(*counted) for day, counted in written["days"].items()},
    )
