"""Estimates a job's time to first token (TTFT) on this node, from the jobs that it has now, and its share of prefill.

The model is continuous batching with chunked prefill: prompts are read one after the other, in order of arrival, at
nearly full speed, while answers go on at a fraction of theirs. A gateway's picture of the node is up to a heartbeat
old; this one is current. Pure: time comes in by argument. The simulator's nodes decide with the same class.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sparewatt.core.lessons import Lessons
from sparewatt.core.refusal import would_refuse
from sparewatt.protocol.link.node_report import ModelReport, Speed

OUTPUT_TOKENS_DEFAULT = 256
"""The length of an answer until some were seen."""
DECODE_EWMA = 0.2
OVERDUE_SHARE = 0.125
"""An answer that takes longer than usual is expected to need this share of the usual time still."""
PREFILL_SHARE_DECAY_S = 5.0
FASTER_MAX = 10.0
"""How many times faster than it was measured, on a busy machine, a server may turn out to be."""
PREFILL_PACE_DEFAULT = 0.8
DECODE_PACE_DEFAULT = 0.2
"""Where they were not measured: what servers with chunked prefill do."""


class BackendCapacity(NamedTuple):
    """What the model server has room for, and what else runs on it."""

    slots: int
    foreign: int = 0
    """Requests that did not come through this node."""
    kv_bytes: int | None = None
    """Size of its KV cache, where that is known."""

    @property
    def kv_bytes_max(self) -> float:
        return math.inf if self.kv_bytes is None else self.kv_bytes


class ForeignLoad(NamedTuple):
    """Jobs as a gateway process sees them that did not send them."""

    jobs: int = 0
    backlog_s: float = 0.0
    """Prefill of their prompts that is still to be done."""
    kv_bytes: int = 0
    models: tuple[str, ...] = ()


NO_FOREIGN_LOAD = ForeignLoad()


class Paces(NamedTuple):
    """How reading and writing slow each other on one server, as shares of their speeds alone."""

    prefill: float = PREFILL_PACE_DEFAULT
    decode: float = DECODE_PACE_DEFAULT

    @classmethod
    def of(cls, speed: Speed) -> Paces:
        return cls(speed.prefill_pace or PREFILL_PACE_DEFAULT, speed.decode_pace or DECODE_PACE_DEFAULT)


UNMEASURED_PACES = Paces()


@dataclass(slots=True, eq=False)
class SlotUse:
    """One job at the model server, waiting or running, with the times that it should take."""

    prefill_s: float
    """To its first token on an idle node, by what is known."""
    decode_s: float
    began_s: float
    first_token_at_s: float | None = None
    kv_bytes: float = 0.0
    """What its context will take of the KV cache."""
    model: str = ""
    number: int = 0
    """Of a job that began on an idle node; 0 for others."""
    figures_s: float = 0.0
    """As `prefill_s`, by the measured curve alone; 0 if its first token says nothing about that."""
    paces: Paces = UNMEASURED_PACES


def uncached_tokens(model: ModelReport, prompt_tokens: int, cached_tokens: int) -> int:
    """The tokens to prefill, if `cached_tokens` are in the prefix cache; a server without one prefills all."""
    return max(0, prompt_tokens - min(cached_tokens, model.prefix_cache_tokens))


def expected_ttft_s(new: SlotUse, uses: Sequence[SlotUse], capacity: BackendCapacity, paces: Paces) -> float:
    """TTFT of a job that arrives now behind `uses`, in order of arrival.

    Simulates the queue with a heap of (end, KV bytes): who gets a slot and room in the KV cache, first come, first
    served, and when its prompt is read. Foreign requests count as half done.
    """
    now_s, bytes_max = new.began_s, capacity.kv_bytes_max
    writers = capacity.foreign + sum(use.first_token_at_s is not None for use in uses)
    backlog_s = _backlog_s(uses, capacity.slots - writers, now_s, paces.prefill if writers else 1.0)
    running = [(new.decode_s / 2, 0.0)] * min(capacity.foreign, capacity.slots)
    used_bytes = at_s = read_until_s = 0.0
    is_next = True
    for use in (*uses, new):
        while running and (len(running) >= capacity.slots or used_bytes + use.kv_bytes > bytes_max):
            at_s, freed_bytes = heapq.heappop(running)
            used_bytes -= freed_bytes
        if use.first_token_at_s is not None:
            end_s = _stalled_s(_remaining_s(use, use.first_token_at_s, now_s), backlog_s, paces.decode)
        else:
            left_s = _left_to_read_s(use, uses, now_s) if is_next and at_s <= 0 else use.prefill_s
            read_until_s = max(at_s, read_until_s) + left_s / (paces.prefill if running else 1.0)
            is_next = False
            end_s = read_until_s + use.decode_s
        heapq.heappush(running, (end_s, use.kv_bytes))
        used_bytes += use.kv_bytes
    return read_until_s


def _backlog_s(uses: Sequence[SlotUse], free_slots: int, now_s: float, pace: float) -> float:
    """How long the prompts will be read that have a slot: so long do running answers stall."""
    waiting = [use for use in uses if use.first_token_at_s is None][: max(0, free_slots)]
    if not waiting:
        return 0.0
    return (_left_to_read_s(waiting[0], uses, now_s) + sum(use.prefill_s for use in waiting[1:])) / pace


def _left_to_read_s(use: SlotUse, uses: Sequence[SlotUse], now_s: float) -> float:
    """Of the prompt whose turn it is: read since it came, or since the one before it had its first token."""
    turns_s = [other.first_token_at_s for other in uses if other.first_token_at_s is not None]
    return max(0.0, use.prefill_s - (now_s - max([use.began_s, *turns_s])))


def _stalled_s(left_s: float, backlog_s: float, decode_pace: float) -> float:
    """Seconds for `left_s` of writing, if prompts are read for the next `backlog_s`."""
    written_s = backlog_s * decode_pace
    return left_s / decode_pace if left_s <= written_s else left_s + backlog_s - written_s


def _remaining_s(use: SlotUse, first_token_at_s: float, now_s: float) -> float:
    return max(OVERDUE_SHARE * use.decode_s, use.decode_s - (now_s - first_token_at_s))


class DecodeTimes:
    """How long answers of each model usually take here, from first token to last: a moving average (EWMA)."""

    def __init__(self) -> None:
        self._typical_s: dict[str, float] = {}

    def typical_s(self, model: str, speed: Speed) -> float:
        return self._typical_s.get(model, OUTPUT_TOKENS_DEFAULT / speed.decode_tps)

    def note(self, model: str, took_s: float) -> None:
        before_s = self._typical_s.get(model, took_s)
        self._typical_s[model] = before_s + DECODE_EWMA * (took_s - before_s)


class PrefillShare:
    """The share of the last seconds spent on prefill, with exponential decay."""

    def __init__(self) -> None:
        self._share = 0.0
        self._is_prefilling = False
        self._noted_s: float | None = None

    def note(self, *, is_prefilling: bool, now_s: float) -> None:
        """`is_prefilling` holds from now on."""
        if self._noted_s is not None:
            decay = math.exp(-max(0.0, now_s - self._noted_s) / PREFILL_SHARE_DECAY_S)
            self._share = self._share * decay + self._is_prefilling * (1.0 - decay)
        self._is_prefilling, self._noted_s = is_prefilling, now_s

    @property
    def value(self) -> float:
        return round(self._share, 2)


@dataclass(slots=True)
class TtftEstimator:
    """All of this node's jobs at its model server, and the TTFT of one more."""

    capacity: BackendCapacity = field(default=BackendCapacity(1))
    """Its owner keeps it up to date."""
    slot_uses: dict[Hashable, SlotUse] = field(default_factory=dict)
    _decode_times: DecodeTimes = field(default_factory=DecodeTimes)
    _prefill_share: PrefillShare = field(default_factory=PrefillShare)
    _decoding: int = 0
    """Jobs past their first token, and what their contexts take of the KV cache."""
    _decoding_kv_bytes: float = 0.0
    _begun: int = 0
    """Jobs so far."""
    _reading: dict[str, Lessons] = field(default_factory=dict)
    """By model: what its prompts have taught about the measured curve."""
    _read_at_s: float = 0.0
    """When the last first token came."""
    _loading_from_s: dict[str, float] = field(default_factory=dict)
    """By model that is not loaded: when the first job came that makes the server load it."""

    def late_ttft_s(
        self, model: ModelReport, prompt_tokens: int, *, promised_s: float, now_s: float, cached_tokens: int = 0
    ) -> float | None:
        """The expected TTFT, if it is so far beyond the promised one that the job is refused.

        `promised_s` 0 accepts any. `cached_tokens`: of the prompt, in the prefix cache by the gateway's belief.
        """
        if promised_s <= 0:
            return None
        own_s = self.ttft_s(model, prompt_tokens, now_s=now_s, cached_tokens=cached_tokens)
        if own_s is None or not would_refuse(own_ttft_s=own_s, promised_ttft_s=promised_s):
            return None
        return own_s

    def ttft_s(self, model: ModelReport, prompt_tokens: int, *, now_s: float, cached_tokens: int = 0) -> float | None:
        """The expected TTFT of a job that comes now; None before the model is measured."""
        if model.measured is None:
            return None
        new = self._new_slot_use(model, prompt_tokens, now_s, cached_tokens)
        uses = list(self.slot_uses.values())
        return self._load_left_s(model, now_s) + expected_ttft_s(new, uses, self.capacity, Paces.of(model.measured))

    def _load_left_s(self, model: ModelReport, now_s: float) -> float:
        return model.load_left_s(now_s - self._loading_from_s.get(model.id, now_s))

    def begin(
        self, job: Hashable, model: ModelReport | None, prompt_tokens: int, *, now_s: float, cached_tokens: int = 0
    ) -> None:
        use = self._new_slot_use(model, prompt_tokens, now_s, cached_tokens)
        if model is not None and model.state != "warm":
            self._loading_from_s.setdefault(model.id, now_s)
        elif model is not None:
            self._loading_from_s.pop(model.id, None)
        self._begun += 1
        use.number = self._begun if not self.slot_uses else 0
        self.slot_uses[job] = use
        self.prefill_share(now_s)

    def is_alone(self, job: Hashable) -> bool:
        """Whether no other job of this node has run beside it so far."""
        use = self.slot_uses.get(job)
        return use is not None and use.number == self._begun

    def note_first_token(self, job: Hashable, *, now_s: float) -> None:
        use = self.slot_uses.get(job)
        if use is not None and use.first_token_at_s is None:
            self._learn(use, now_s)
            use.first_token_at_s = now_s
            self._decoding += 1
            self._decoding_kv_bytes += use.kv_bytes
            self.prefill_share(now_s)

    def _learn(self, use: SlotUse, now_s: float) -> None:
        """A prompt is timed from when it came, or from when the one before it was read. One that had to wait for a slot
        says nothing."""
        turn_s, self._read_at_s = max(use.began_s, self._read_at_s), now_s
        if use.figures_s > 0 and len(self.slot_uses) <= self.capacity.slots and not self.capacity.foreign:
            beside = use.paces.prefill if self._decoding else 1.0
            lessons = self._reading.setdefault(use.model, Lessons())
            lessons.add(observed=now_s - turn_s, predicted=use.figures_s / beside, faster_max=FASTER_MAX)

    def end(self, job: Hashable, *, now_s: float) -> None:
        """The job is over, however it ended."""
        use = self.slot_uses.pop(job, None)
        if use is None:
            return
        if use.first_token_at_s is not None:
            self._decoding -= 1
            self._decoding_kv_bytes = self._decoding_kv_bytes - use.kv_bytes if self._decoding else 0.0
            self._decode_times.note(use.model, now_s - use.first_token_at_s)
        self.prefill_share(now_s)

    def left_to_read_s(self, job: Hashable, *, now_s: float) -> float:
        """Of its prompt, if it is the one that is read."""
        use = self.slot_uses.get(job)
        if use is None or use.first_token_at_s is not None:
            return 0.0
        return _left_to_read_s(use, list(self.slot_uses.values()), now_s)

    def load_of(self, jobs: Collection[Hashable], *, abandoned: Collection[Hashable] = (), now_s: float) -> ForeignLoad:
        """Of jobs that a gateway process did not send, and of requests that the model server has not given up yet."""
        left = [use for job in abandoned if (use := self.slot_uses.get(job)) is not None]
        uses = [use for job in jobs if (use := self.slot_uses.get(job)) is not None]
        abandoned_s = sum(self.left_to_read_s(job, now_s=now_s) for job in abandoned)
        backlog_s = abandoned_s + sum(use.prefill_s for use in uses if use.first_token_at_s is None)
        uses += left
        return ForeignLoad(
            jobs=len(jobs) + len(abandoned),
            backlog_s=backlog_s,
            kv_bytes=round(sum(use.kv_bytes for use in uses)),
            models=tuple(sorted({use.model for use in uses if use.model})),
        )

    def prefill_share(self, now_s: float) -> float:
        self._prefill_share.note(is_prefilling=self._is_prefilling(), now_s=now_s)
        return self._prefill_share.value

    def _is_prefilling(self) -> bool:
        """Whether a prompt is in prefill; one that still waits for a slot is not."""
        if len(self.slot_uses) == self._decoding:
            return False
        if not self._decoding:
            return True
        first = next(use for use in self.slot_uses.values() if use.first_token_at_s is None)
        has_room = self._decoding_kv_bytes + first.kv_bytes <= self.capacity.kv_bytes_max
        return self._decoding < self.capacity.slots and has_room

    def _new_slot_use(self, model: ModelReport | None, prompt_tokens: int, now_s: float, cached_tokens: int) -> SlotUse:
        if model is None or model.measured is None:
            return SlotUse(0.0, 0.0, now_s, model=model.id if model is not None else "")
        figures_s = model.measured.prefill_s(uncached_tokens(model, prompt_tokens, cached_tokens))
        lessons = self._reading.get(model.id)
        return SlotUse(
            prefill_s=figures_s * (lessons.factor if lessons is not None else 1.0),
            decode_s=self._decode_times.typical_s(model.id, model.measured),
            began_s=now_s,
            kv_bytes=(prompt_tokens + OUTPUT_TOKENS_DEFAULT) * model.kv_bytes_per_token,
            model=model.id,
            figures_s=figures_s if model.state == "warm" else 0.0,
            paces=Paces.of(model.measured),
        )
