"""Estimates a job's time to first token (TTFT) on this node, from the jobs that it has now, and its share of prefill.

A gateway's picture of the node is up to a heartbeat old; this one is current. Pure: time comes in by argument. The
simulator's nodes decide with the same class.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sparewatt.core.refusal import would_refuse
from sparewatt.node.measurement.model_speed import SHORT_PROMPT_TOKENS
from sparewatt.protocol.link.node_report import ModelReport, Speed

OUTPUT_TOKENS_DEFAULT = 256
"""The length of an answer until some were seen."""
DECODE_EWMA = 0.2
OVERDUE_SHARE = 0.125
"""An answer that takes longer than usual is expected to need this share of the usual time still."""
PREFILL_SHARE_DECAY_S = 15.0


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


@dataclass(slots=True, eq=False)
class SlotUse:
    """One job at the model server, waiting or running, with the times that it should take."""

    prefill_s: float
    decode_s: float
    began_s: float
    first_token_at_s: float | None = None
    kv_bytes: float = 0.0
    """What its context will take of the KV cache."""
    model: str = ""


def idle_ttft_s(speed: Speed, prompt_tokens: int) -> float:
    """TTFT on a node without other jobs, by the same rule as the gateway's."""
    short_s = max(speed.ttft_s, SHORT_PROMPT_TOKENS / speed.prefill_tps)
    return short_s + max(0.0, prompt_tokens - SHORT_PROMPT_TOKENS) / speed.prefill_tps


def uncached_tokens(model: ModelReport, prompt_tokens: int, cached_tokens: int) -> int:
    """The tokens to prefill, if `cached_tokens` are in the prefix cache; a server without one prefills all."""
    return max(0, prompt_tokens - min(cached_tokens, model.prefix_cache_tokens))


def expected_ttft_s(idle_s: float, new: SlotUse, uses: Sequence[SlotUse], capacity: BackendCapacity) -> float:
    """TTFT of a job that arrives now behind `uses`, in order of arrival, if it is `idle_s` on an idle node."""
    backlog_s = _prefill_backlog_s(uses, new.began_s)
    slowdown = 2.0 if uses or capacity.foreign else 1.0  # prefill and decode halve each other's speed
    wait_s = _slot_wait_s(new, uses, capacity, backlog_s)
    return wait_s + idle_s * slowdown if wait_s > 0 else (backlog_s + idle_s) * slowdown


def _slot_wait_s(new: SlotUse, uses: Sequence[SlotUse], capacity: BackendCapacity, backlog_s: float) -> float:
    """Seconds until a slot and room in the KV cache are free, first come, first served; 0 if they are now.

    Simulates the queue with a heap of (end, KV bytes). Foreign requests count as half done.
    """
    running = [(new.decode_s / 2, 0.0)] * min(capacity.foreign, capacity.slots)
    used_bytes, at_s, bytes_max = 0.0, 0.0, capacity.kv_bytes_max
    for use in (*uses, new):
        while running and (len(running) >= capacity.slots or used_bytes + use.kv_bytes > bytes_max):
            at_s, freed_bytes = heapq.heappop(running)
            used_bytes -= freed_bytes
        has_begun = at_s <= 0
        end_s = _remaining_s(use, backlog_s, new.began_s) if has_begun else at_s + use.prefill_s + use.decode_s
        heapq.heappush(running, (end_s, use.kv_bytes))
        used_bytes += use.kv_bytes
    return at_s


def _prefill_backlog_s(uses: Sequence[SlotUse], now_s: float) -> float:
    """Prefill still to be done, less the time since the oldest of these prompts arrived."""
    waiting = [use for use in uses if use.first_token_at_s is None]
    if not waiting:
        return 0.0
    return max(0.0, sum(use.prefill_s for use in waiting) - (now_s - waiting[0].began_s))


def _remaining_s(use: SlotUse, backlog_s: float, now_s: float) -> float:
    if use.first_token_at_s is None:
        return backlog_s + use.decode_s
    return max(OVERDUE_SHARE * use.decode_s, use.decode_s - (now_s - use.first_token_at_s))


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

    def late_ttft_s(
        self, model: ModelReport, prompt_tokens: int, *, promised_s: float, now_s: float, cached_tokens: int = 0
    ) -> float | None:
        """The expected TTFT, if it is so far beyond the promised one that the job is refused.

        `promised_s` 0 accepts any. `cached_tokens`: of the prompt, in the prefix cache by the gateway's belief.
        """
        if promised_s <= 0 or model.measured is None:
            return None
        new = self._new_slot_use(model, prompt_tokens, now_s, cached_tokens)
        idle_s = idle_ttft_s(model.measured, uncached_tokens(model, prompt_tokens, cached_tokens))
        own_s = model.load_s + expected_ttft_s(idle_s, new, list(self.slot_uses.values()), self.capacity)
        return own_s if would_refuse(own_ttft_s=own_s, promised_ttft_s=promised_s) else None

    def begin(
        self, job: Hashable, model: ModelReport | None, prompt_tokens: int, *, now_s: float, cached_tokens: int = 0
    ) -> None:
        self.slot_uses[job] = self._new_slot_use(model, prompt_tokens, now_s, cached_tokens)
        self.prefill_share(now_s)

    def note_first_token(self, job: Hashable, *, now_s: float) -> None:
        use = self.slot_uses.get(job)
        if use is not None and use.first_token_at_s is None:
            use.first_token_at_s = now_s
            self._decoding += 1
            self._decoding_kv_bytes += use.kv_bytes
            self.prefill_share(now_s)

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

    def load_of(self, jobs: Collection[Hashable]) -> ForeignLoad:
        uses = [use for job in jobs if (use := self.slot_uses.get(job)) is not None]
        return ForeignLoad(
            jobs=len(jobs),
            backlog_s=sum(use.prefill_s for use in uses if use.first_token_at_s is None),
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
        return SlotUse(
            prefill_s=uncached_tokens(model, prompt_tokens, cached_tokens) / model.measured.prefill_tps,
            decode_s=self._decode_times.typical_s(model.id, model.measured),
            began_s=now_s,
            kv_bytes=(prompt_tokens + OUTPUT_TOKENS_DEFAULT) * model.kv_bytes_per_token,
            model=model.id,
        )
