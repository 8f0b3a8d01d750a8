"""Continuous batching, iteration by iteration, as a state machine without sockets; the time comes in by argument.

Each iteration has a budget of tokens. `batching` works as vLLM's V1 scheduler does: running sequences in the order of
their admission, then waiting ones while the budget, the limit of sequences and the KV cache allow; a running sequence
that needs a block when none is free preempts the youngest, which is read again later. `slots` works as llama.cpp does:
a fixed context per slot, first come first served for a slot, writers before prompts, prompts by slot number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from sparewatt.sim.servers.facts import BLOCK_TOKENS, ServerLoad, ServerTotals, SlotLoad

BatchingKind = Literal["slots", "batching"]

ITERATION_S_MIN = 1e-4
"""With a curve of zeros time has to pass all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCurve:
    """How long an iteration takes: a step of all writers, and the chunks of prompts that are read beside it."""

    step_s: float = 0.01
    """With one writer."""
    step_per_job_s: float = 0.0
    step_per_token_s: float = 0.0
    """For each token in the contexts of all writers."""
    prefill_fixed_s: float = 0.0
    """Once per prompt."""
    prefill_token_s: float = 0.0001
    prefill_square_s: float = 0.0
    """Times the square of the prompt's length, spread over its chunks."""

    def decode_s(self, *, writers: int, context_tokens: int) -> float:
        if not writers:
            return 0.0
        return self.step_s + self.step_per_job_s * (writers - 1) + self.step_per_token_s * context_tokens

    def chunk_s(self, *, start: int, tokens: int, is_first: bool) -> float:
        """Tokens `start` to `start + tokens` of a prompt."""
        square = (start + tokens) ** 2 - start**2
        fixed_s = self.prefill_fixed_s if is_first else 0.0
        return fixed_s + tokens * self.prefill_token_s + square * self.prefill_square_s


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    kind: BatchingKind
    seqs_max: int
    """`max_num_seqs`, or the number of slots."""
    chunk_tokens: int
    """The budget of an iteration: `max_num_batched_tokens`, or llama.cpp's `n_batch`."""
    context_length: int
    kv_tokens: int = 0
    """Of all sequences together; slots have a context each instead."""
    separate_prefill: bool = False
    """As SGLang does by default: an iteration either reads or writes, and reading comes first."""

    def __post_init__(self) -> None:
        if self.kind == "batching" and self.kv_tokens // BLOCK_TOKENS < blocks_for(self.context_length):
            raise ValueError(
                f"A KV cache of {self.kv_tokens} tokens cannot hold one context of {self.context_length}. "
                "Give more --kv-tokens or a smaller --n-ctx."
            )


def blocks_for(tokens: int) -> int:
    return -(-tokens // BLOCK_TOKENS)


@dataclass(slots=True, eq=False, kw_only=True)
class BatchedSequence:
    """One request. `read` counts the tokens whose keys and values are computed, of the prompt and of the answer."""

    prompt_tokens: int
    cached_tokens: int
    new_tokens: int
    arrived_s: float
    read: int = 0
    written: int = 0
    blocks: int = 0
    slot: int = -1
    started_s: float | None = None
    first_token_s: float | None = None
    is_running: bool = False
    is_ended: bool = False
    """Finished or cancelled."""
    is_preempted: bool = False

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.written

    @property
    def is_writing(self) -> bool:
        return self.written > 0 and self.read == self.tokens - 1


@dataclass(slots=True)
class _Iteration:
    work: list[tuple[BatchedSequence, int]]
    end_s: float


@dataclass(slots=True)
class BatchScheduler:
    """An iteration begins when the one before ends, or when a request comes to an idle engine.

    Whoever drives it calls `advance` at `due_s` or later: iterations keep their own schedule, so that late calls do not
    delay what follows.
    """

    limits: BatchLimits
    curve: StepCurve
    running: list[BatchedSequence] = field(default_factory=list)
    """In the order of admission; of slots, by slot number."""
    waiting: deque[BatchedSequence] = field(default_factory=deque)
    blocks_free: int = field(init=False)
    _iteration: _Iteration | None = None
    _sums: ServerTotals = field(default_factory=ServerTotals)
    _slots_free: deque[int] = field(init=False)
    """The least recently used first."""

    def __post_init__(self) -> None:
        self.blocks_free = self.limits.kv_tokens // BLOCK_TOKENS
        self._slots_free = deque(range(self.limits.seqs_max))

    @property
    def due_s(self) -> float | None:
        """When the running iteration ends; None if the engine is idle."""
        return self._iteration.end_s if self._iteration is not None else None

    def submit(self, now_s: float, *, prompt_tokens: int, cached_tokens: int = 0, new_tokens: int) -> BatchedSequence:
        """Queue a request. Call `advance(now_s)` first: it may belong to an iteration that is already over."""
        cached = max(0, min(cached_tokens, prompt_tokens - 1))
        sequence = BatchedSequence(
            prompt_tokens=max(1, prompt_tokens), cached_tokens=cached, new_tokens=max(1, new_tokens), arrived_s=now_s
        )
        self.waiting.append(sequence)
        if self._iteration is None:
            self._begin(now_s)
        return sequence

    def cancel(self, sequence: BatchedSequence) -> None:
        """Free its place at once. The iteration that runs now takes as long as it would have with it."""
        if sequence.is_ended:
            return
        sequence.is_ended = True
        if sequence.is_running:
            self._release(sequence)
        else:
            self.waiting.remove(sequence)

    def advance(self, now_s: float) -> list[tuple[float, BatchedSequence]]:
        """Work up to `now_s`; returns each token that was written, with its time."""
        tokens: list[tuple[float, BatchedSequence]] = []
        while self._iteration is not None and self._iteration.end_s <= now_s:
            end_s = self._iteration.end_s
            tokens += [(end_s, sequence) for sequence in self._complete(self._iteration)]
            self._begin(end_s)
        return tokens

    def load(self) -> ServerLoad:
        blocks = self.limits.kv_tokens // BLOCK_TOKENS
        return ServerLoad(
            running=len(self.running),
            waiting=len(self.waiting),
            kv_used_share=1 - self.blocks_free / blocks if blocks else self._slots_used_share(),
            slots=self._slot_loads() if self.limits.kind == "slots" else (),
            totals=replace(self._sums),
        )

    def _begin(self, now_s: float) -> None:
        work = self._schedule_slots() if self.limits.kind == "slots" else self._schedule_blocks()
        self._iteration = _Iteration(work, now_s + self._iteration_s(work)) if work else None
        for sequence, _ in work:
            if sequence.started_s is None:
                sequence.started_s = now_s
        if work:
            self._sums.iterations += 1
            self._sums.busy_slots += len(work)

    def _iteration_s(self, work: Iterable[tuple[BatchedSequence, int]]) -> float:
        total_s, writers, context = 0.0, 0, 0
        for sequence, tokens in work:
            if sequence.is_writing:
                writers += 1
                context += sequence.tokens
            else:
                is_first = sequence.read == (0 if sequence.is_preempted else sequence.cached_tokens)
                total_s += self.curve.chunk_s(start=sequence.read, tokens=tokens, is_first=is_first)
        return max(ITERATION_S_MIN, total_s + self.curve.decode_s(writers=writers, context_tokens=context))

    def _schedule_slots(self) -> list[tuple[BatchedSequence, int]]:
        while self.waiting and self._slots_free:
            sequence = self.waiting.popleft()
            sequence.slot = self._slots_free.popleft()
            self._start(sequence)
        self.running.sort(key=lambda sequence: sequence.slot)
        writers = [sequence for sequence in self.running if sequence.is_writing]
        readers = [sequence for sequence in self.running if not sequence.is_writing]
        return self._share(writers + readers, self.limits.chunk_tokens)

    def _share(self, sequences: Iterable[BatchedSequence], budget: int) -> list[tuple[BatchedSequence, int]]:
        """What each gets of the budget, in this order."""
        work = []
        for sequence in sequences:
            tokens = min(sequence.tokens - sequence.read, budget)
            if tokens <= 0:
                break
            work.append((sequence, tokens))
            budget -= tokens
        return work

    def _schedule_blocks(self) -> list[tuple[BatchedSequence, int]]:
        if not self.limits.separate_prefill:
            return self._schedule_running(list(self.running), admits=True)
        readers = [sequence for sequence in self.running if not sequence.is_writing]
        return self._schedule_running(readers, admits=True) or self._schedule_running(list(self.running), admits=False)

    def _schedule_running(self, sequences: list[BatchedSequence], *, admits: bool) -> list[tuple[BatchedSequence, int]]:
        """Nobody is admitted in an iteration that had to preempt."""
        budget = self.limits.chunk_tokens
        work: list[tuple[BatchedSequence, int]] = []
        preempted = self._sums.preemptions
        for sequence in sequences:
            tokens = min(sequence.tokens - sequence.read, budget)
            if tokens <= 0 or not sequence.is_running or not self._allocate_or_preempt(sequence, tokens):
                break
            work.append((sequence, tokens))
            budget -= tokens
        if admits and self._sums.preemptions == preempted:
            work += self._admit(budget)
        return work

    def _admit(self, budget: int) -> list[tuple[BatchedSequence, int]]:
        """In order of arrival, and only if the whole sequence fits into what is free."""
        work = []
        while self.waiting and budget > 0 and len(self.running) < self.limits.seqs_max:
            sequence = self.waiting[0]
            if blocks_for(sequence.tokens) > self.blocks_free:
                break
            self.waiting.popleft()
            self._start(sequence)
            tokens = min(sequence.tokens - sequence.read, budget)
            self._allocate(sequence, tokens)
            work.append((sequence, tokens))
            budget -= tokens
        return work

    def _start(self, sequence: BatchedSequence) -> None:
        sequence.read = 0 if sequence.is_preempted else sequence.cached_tokens
        sequence.is_running = True
        self.running.append(sequence)

    def _allocate_or_preempt(self, sequence: BatchedSequence, tokens: int) -> bool:
        """False if the sequence itself had to go."""
        while not self._allocate(sequence, tokens):
            victim = self.running[-1]
            self._preempt(victim)
            if victim is sequence:
                return False
        return True

    def _allocate(self, sequence: BatchedSequence, tokens: int) -> bool:
        more = blocks_for(sequence.read + tokens) - sequence.blocks
        if more > self.blocks_free:
            return False
        if more > 0:
            sequence.blocks += more
            self.blocks_free -= more
        return True

    def _preempt(self, sequence: BatchedSequence) -> None:
        """It waits before all others and is read again, its answer so far included."""
        self._release(sequence)
        sequence.read, sequence.is_preempted = 0, True
        self.waiting.appendleft(sequence)
        self._sums.preemptions += 1

    def _release(self, sequence: BatchedSequence) -> None:
        self.running.remove(sequence)
        sequence.is_running = False
        self.blocks_free += sequence.blocks
        sequence.blocks = 0
        if sequence.slot >= 0:
            self._slots_free.append(sequence.slot)
            sequence.slot = -1

    def _complete(self, iteration: _Iteration) -> list[BatchedSequence]:
        """The sequences that got a token."""
        written = []
        for sequence, tokens in iteration.work:
            if sequence.is_ended:
                continue
            if not sequence.is_writing:
                self._sums.prompt_tokens += tokens
            sequence.read += tokens
            if sequence.read == sequence.tokens:
                self._write(sequence, iteration.end_s)
                written.append(sequence)
        return written

    def _write(self, sequence: BatchedSequence, now_s: float) -> None:
        sums, started_s = self._sums, sequence.started_s if sequence.started_s is not None else now_s
        sequence.written += 1
        sums.generation_tokens += 1
        if sequence.first_token_s is None:
            sequence.first_token_s = now_s
            sums.cached_tokens += sequence.cached_tokens
            sums.first_tokens += 1
            sums.first_token_s += now_s - sequence.arrived_s
            sums.prompt_s += now_s - started_s
        if sequence.written >= sequence.new_tokens:
            sequence.is_ended = True
            sums.requests += 1
            sums.request_s += now_s - sequence.arrived_s
            sums.decode_s += now_s - sequence.first_token_s
            sums.longest_tokens = max(sums.longest_tokens, sequence.tokens)
            self._release(sequence)

    def _slots_used_share(self) -> float:
        held = sum(sequence.read for sequence in self.running)
        return min(1.0, held / (self.limits.seqs_max * self.limits.context_length))

    def _slot_loads(self) -> tuple[SlotLoad | None, ...]:
        loads: list[SlotLoad | None] = [None] * self.limits.seqs_max
        for sequence in self.running:
            loads[sequence.slot] = SlotLoad(
                prompt_tokens=sequence.prompt_tokens,
                read_tokens=min(sequence.read, sequence.prompt_tokens) - sequence.cached_tokens,
                cached_tokens=sequence.cached_tokens,
                written_tokens=sequence.written,
            )
        return tuple(loads)
