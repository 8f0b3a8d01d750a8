"""How long a job would wait for its first token here, by the node's own count, and how busy it is with reading.

The gateway's picture is a heartbeat old; this one is not. Pure: time comes in by argument, and nothing is sent. The
simulator's nodes decide with the same class.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sparewatt.core.refusal import would_refuse
from sparewatt.node.measurement.chat_speed import SHORT_PROMPT_TOKENS
from sparewatt.protocol.link.node_report import ModelReport, Speed

OUTPUT_TOKENS_DEFAULT = 256
"""The length of an answer until some were seen."""
DECODE_EWMA = 0.2
NEARLY_OVER = 0.125
"""What is left, of a usual answer's time, of one that has taken longer than usual."""
PREFILL_SHARE_DECAY_S = 15.0


class BackendCapacity(NamedTuple):
    """What the model server has room for, and who else is there."""

    slots: int
    foreign: int = 0
    """Requests on it that did not come through this node."""
    kv_bytes: int | None = None
    """Memory for the keys and values of all contexts, where that is known."""


class ForeignLoad(NamedTuple):
    """Some of the jobs, for a gateway process that did not send them."""

    jobs: int = 0
    backlog_s: float = 0.0
    """Of their prompts that are still to be read."""
    kv_bytes: int = 0
    models: tuple[str, ...] = ()


NO_FOREIGN_LOAD = ForeignLoad()
ONE_SLOT = BackendCapacity(1)
"""What a model server is taken to have until it says more."""


@dataclass(slots=True, eq=False)
class SlotUse:
    """One job of ours at the model server, in arrival order: seconds its prompt and its answer should take."""

    prefill_s: float
    decode_s: float
    began_s: float
    first_token_at_s: float | None = None
    """When its first token came."""
    kv_bytes: float = 0.0
    """What its context will hold."""


def idle_ttft_s(speed: Speed, prompt_tokens: int) -> float:
    """Seconds to the first token on a node that does nothing else, by the same rule as the gateway's."""
    short_s = max(speed.ttft_s, SHORT_PROMPT_TOKENS / speed.prefill_tps)
    return short_s + max(0.0, prompt_tokens - SHORT_PROMPT_TOKENS) / speed.prefill_tps


def uncached_tokens(model: ModelReport, prompt_tokens: int, cached_tokens: int) -> int:
    """What is left to read of a prompt of which so much is said to be here; a server that keeps nothing reads all."""
    return max(0, prompt_tokens - min(cached_tokens, model.prefix_cache_tokens))


def expected_ttft_s(alone_s: float, new: SlotUse, turns: Sequence[SlotUse], house: BackendCapacity) -> float:
    """Seconds until a job that comes now would say its first word, if alone on the node it took `alone_s`."""
    unread_s = _prefill_backlog_s(turns, new.began_s)
    together = 2.0 if turns or house.foreign else 1.0  # reading and writing halve each other
    wait_s = _slot_wait_s(new, turns, house, unread_s)
    return wait_s + alone_s * together if wait_s > 0 else (unread_s + alone_s) * together


def _slot_wait_s(new: SlotUse, turns: Sequence[SlotUse], house: BackendCapacity, unread_s: float) -> float:
    """Seconds until slots and memory let the new one in, first come, first served; zero if they do so now."""
    strangers = min(house.foreign, house.slots)
    leaving = [(new.decode_s / 2, 0.0)] * strangers
    room_bytes = math.inf if house.kv_bytes is None else house.kv_bytes
    used_bytes = at_s = 0.0
    for turn in (*turns, new):
        while leaving and (len(leaving) >= house.slots or used_bytes + turn.kv_bytes > room_bytes):
            at_s, freed_bytes = heapq.heappop(leaving)
            used_bytes -= freed_bytes
        has_begun = at_s <= 0
        left_s = _remaining_s(turn, unread_s, new.began_s) if has_begun else at_s + turn.prefill_s + turn.decode_s
        heapq.heappush(leaving, (left_s, turn.kv_bytes))
        used_bytes += turn.kv_bytes
    return at_s


def _prefill_backlog_s(turns: Sequence[SlotUse], now_s: float) -> float:
    """Reading still to be done, less what was done since the oldest of these prompts came."""
    unread = [turn for turn in turns if turn.first_token_at_s is None]
    if not unread:
        return 0.0
    return max(0.0, sum(turn.prefill_s for turn in unread) - (now_s - unread[0].began_s))


def _remaining_s(turn: SlotUse, unread_s: float, now_s: float) -> float:
    if turn.first_token_at_s is None:
        return unread_s + turn.decode_s
    return max(NEARLY_OVER * turn.decode_s, turn.decode_s - (now_s - turn.first_token_at_s))


class DecodeTimes:
    """How long answers of each model usually take here, first token to last, in the company they have."""

    def __init__(self) -> None:
        self._typical_s: dict[str, float] = {}

    def typical_s(self, model: str, speed: Speed) -> float:
        return self._typical_s.get(model, OUTPUT_TOKENS_DEFAULT / speed.decode_tps)

    def note(self, model: str, took_s: float) -> None:
        before_s = self._typical_s.get(model, took_s)
        self._typical_s[model] = before_s + DECODE_EWMA * (took_s - before_s)


class PrefillShare:
    """The share of the last seconds during which a prompt was being read; what is older fades."""

    def __init__(self) -> None:
        self._share = 0.0
        self._is_prefilling = False
        self._noted_s: float | None = None

    def note(self, *, is_reading: bool, now_s: float) -> None:
        """From now on a prompt is being read, or none is."""
        if self._noted_s is not None:
            faded = math.exp(-max(0.0, now_s - self._noted_s) / PREFILL_SHARE_DECAY_S)
            self._share = self._share * faded + self._is_prefilling * (1.0 - faded)
        self._is_prefilling, self._noted_s = is_reading, now_s

    @property
    def value(self) -> float:
        return round(self._share, 2)


@dataclass(slots=True)
class TtftEstimator:
    """All of this node's jobs at its model server, and what one more would have to expect."""

    capacity: BackendCapacity = ONE_SLOT
    """As last seen; whoever owns this keeps it up to date."""
    slot_uses: dict[Hashable, SlotUse] = field(default_factory=dict)
    _models: dict[Hashable, str] = field(default_factory=dict)
    _decode_times: DecodeTimes = field(default_factory=DecodeTimes)
    _prefill_share: PrefillShare = field(default_factory=PrefillShare)
    _decoding: int = 0
    """Turns whose answers are being written, and what their contexts hold."""
    _decoding_kv_bytes: float = 0.0

    def late_ttft_s(
        self, model: ModelReport, prompt_tokens: int, *, promised_s: float, now_s: float, cached_tokens: int = 0
    ) -> float | None:
        """When the first token would come, if that is so late that the job is refused.

        A gateway that promises nothing takes what it gets. `cached_tokens`: what need not be read, by its belief.
        """
        if promised_s <= 0 or model.measured is None:
            return None
        new = self._new_slot_use(model, prompt_tokens, now_s, cached_tokens)
        alone_s = idle_ttft_s(model.measured, uncached_tokens(model, prompt_tokens, cached_tokens))
        own_s = model.load_s + expected_ttft_s(alone_s, new, list(self.slot_uses.values()), self.capacity)
        return own_s if would_refuse(own_ttft_s=own_s, promised_ttft_s=promised_s) else None

    def begin(
        self, job: Hashable, model: ModelReport | None, prompt_tokens: int, *, now_s: float, cached_tokens: int = 0
    ) -> None:
        self.slot_uses[job] = self._new_slot_use(model, prompt_tokens, now_s, cached_tokens)
        self._models[job] = model.id if model is not None else ""
        self.prefill_share(now_s)

    def note_first_token(self, job: Hashable, *, now_s: float) -> None:
        turn = self.slot_uses.get(job)
        if turn is not None and turn.first_token_at_s is None:
            turn.first_token_at_s = now_s
            self._decoding += 1
            self._decoding_kv_bytes += turn.kv_bytes
            self.prefill_share(now_s)

    def end(self, job: Hashable, *, now_s: float) -> None:
        """Count it no more, however it ended."""
        turn = self.slot_uses.pop(job, None)
        if turn is None:
            return
        model = self._models.pop(job)
        if turn.first_token_at_s is not None:
            self._decoding -= 1
            self._decoding_kv_bytes = self._decoding_kv_bytes - turn.kv_bytes if self._decoding else 0.0
            self._decode_times.note(model, now_s - turn.first_token_at_s)
        self.prefill_share(now_s)

    def load_of(self, jobs: Collection[Hashable]) -> ForeignLoad:
        """What so many of the jobs here ask of the server."""
        turns = [turn for job in jobs if (turn := self.slot_uses.get(job)) is not None]
        return ForeignLoad(
            jobs=len(jobs),
            backlog_s=sum(turn.prefill_s for turn in turns if turn.first_token_at_s is None),
            kv_bytes=round(sum(turn.kv_bytes for turn in turns)),
            models=tuple(sorted({name for job in jobs if (name := self._models.get(job))})),
        )

    def prefill_share(self, now_s: float) -> float:
        self._prefill_share.note(is_reading=self._is_prefilling(), now_s=now_s)
        return self._prefill_share.value

    def _is_prefilling(self) -> bool:
        """Whether a prompt is being read: one that still waits for its place is not."""
        if len(self.slot_uses) == self._decoding:
            return False
        if not self._decoding:
            return True
        first = next(turn for turn in self.slot_uses.values() if turn.first_token_at_s is None)
        room_bytes = math.inf if self.capacity.kv_bytes is None else self.capacity.kv_bytes
        return self._decoding < self.capacity.slots and self._decoding_kv_bytes + first.kv_bytes <= room_bytes

    def _new_slot_use(self, model: ModelReport | None, prompt_tokens: int, now_s: float, cached_tokens: int) -> SlotUse:
        if model is None or model.measured is None:
            return SlotUse(0.0, 0.0, now_s)
        speed = model.measured
        kv_bytes = (prompt_tokens + OUTPUT_TOKENS_DEFAULT) * model.kv_bytes_per_token
        writing_s = self._decode_times.typical_s(model.id, speed)
        prompt_s = uncached_tokens(model, prompt_tokens, cached_tokens) / speed.prefill_tps
        return SlotUse(prompt_s, writing_s, now_s, kv_bytes=kv_bytes)
