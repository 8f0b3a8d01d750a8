"""Continuous batching: the order of work, what an iteration takes, and how memory limits it. Time is a number here."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparewatt.sim.servers.facts import BLOCK_TOKENS
from sparewatt.testing.engine.batching import (
    ITERATION_S_MIN,
    BatchedSequence,
    BatchLimits,
    BatchScheduler,
    StepCurve,
    blocks_for,
)

CURVE = StepCurve(
    step_s=0.01,
    step_per_job_s=0.001,
    step_per_token_s=1e-6,
    prefill_fixed_s=0.02,
    prefill_token_s=0.0001,
    prefill_square_s=1e-9,
)
FLAT = StepCurve(step_s=0.01, prefill_token_s=0.001)
LONG_S = 1e6


def batching(curve: StepCurve = FLAT, **changes: int | bool) -> BatchScheduler:
    values = {"seqs_max": 8, "chunk_tokens": 100, "context_length": 1024, "kv_tokens": 4096} | changes
    return BatchScheduler(BatchLimits(kind="batching", **values), curve)  # type: ignore[arg-type]  # as above


def slots(curve: StepCurve = FLAT, **changes: int) -> BatchScheduler:
    values = {"seqs_max": 2, "chunk_tokens": 100, "context_length": 1024} | changes
    return BatchScheduler(BatchLimits(kind="slots", **values), curve)  # type: ignore[arg-type]  # as above


def times(tokens: list[tuple[float, BatchedSequence]], sequence: BatchedSequence) -> list[float]:
    return [at_s for at_s, each in tokens if each is sequence]


class TestCurve:
    def test_a_prompt_alone_takes_its_fixed_its_linear_and_its_square_time(self) -> None:
        engine = batching(CURVE, chunk_tokens=2048)
        alone = engine.submit(5.0, prompt_tokens=1000, new_tokens=1)

        assert times(engine.advance(LONG_S), alone) == [pytest.approx(5.0 + 0.02 + 0.1 + 0.001)]

    def test_chunks_take_as_long_together_as_the_whole(self) -> None:
        whole, chunked = batching(CURVE, chunk_tokens=2048), batching(CURVE, chunk_tokens=64)
        firsts = [
            times(engine.advance(LONG_S), sequence)
            for engine in (whole, chunked)
            for sequence in (engine.submit(0.0, prompt_tokens=1000, new_tokens=1),)
        ]

        assert firsts[0] == pytest.approx(firsts[1])

    def test_a_step_grows_with_the_writers_and_with_their_contexts(self) -> None:
        engine = batching(CURVE, chunk_tokens=2048)
        one = engine.submit(0.0, prompt_tokens=100, new_tokens=4)
        engine.submit(0.0, prompt_tokens=200, new_tokens=9)
        _, beside_the_prompt_s, third_s, fourth_s = times(engine.advance(LONG_S), one)

        assert third_s - beside_the_prompt_s == pytest.approx(0.01 + 0.001 + 1e-6 * (102 + 201))
        assert fourth_s - third_s == pytest.approx(0.01 + 0.001 + 1e-6 * (103 + 202))

    def test_a_cached_prefix_is_not_read(self) -> None:
        engine = batching()
        sequence = engine.submit(0.0, prompt_tokens=90, cached_tokens=64, new_tokens=1)

        assert times(engine.advance(LONG_S), sequence) == [pytest.approx(0.026)]
        assert (engine.load().totals.prompt_tokens, engine.load().totals.cached_tokens) == (26, 64)

    def test_the_last_token_of_a_prompt_is_always_read(self) -> None:
        engine = batching()
        sequence = engine.submit(0.0, prompt_tokens=64, cached_tokens=64, new_tokens=1)

        assert times(engine.advance(LONG_S), sequence) == [pytest.approx(0.001)]

    def test_time_passes_with_a_curve_of_zeros(self) -> None:
        engine = batching(StepCurve(step_s=0.0, prefill_token_s=0.0))
        sequence = engine.submit(0.0, prompt_tokens=10, new_tokens=3)

        assert times(engine.advance(LONG_S), sequence) == pytest.approx([ITERATION_S_MIN * i for i in (1, 2, 3)])


class TestOrderOfWork:
    def test_a_writer_gets_one_token_for_each_chunk_of_a_prompt_beside_it(self) -> None:
        engine = batching()
        writer = engine.submit(0.0, prompt_tokens=10, new_tokens=5)
        engine.advance(0.01)
        reader = engine.submit(0.012, prompt_tokens=250, new_tokens=1)
        tokens = engine.advance(LONG_S)

        # The reader has the 99 tokens of budget that the writer leaves: 99 + 99 + 52.
        assert times(tokens, writer) == pytest.approx([0.02, 0.129, 0.238, 0.3])
        assert times(tokens, reader) == pytest.approx([0.3])

    def test_prompts_share_the_budget_in_order_of_arrival(self) -> None:
        engine = batching()
        first = engine.submit(0.0, prompt_tokens=130, new_tokens=1)
        second = engine.submit(0.0, prompt_tokens=60, new_tokens=1)
        tokens = engine.advance(LONG_S)

        # The iteration that began with the first alone has 100 of it; the next 30 of it and all of the second.
        assert times(tokens, first) == times(tokens, second) == [pytest.approx(0.1 + 0.09)]

    def test_no_more_sequences_run_than_are_allowed(self) -> None:
        engine = batching(seqs_max=2)
        for _ in range(5):
            engine.submit(0.0, prompt_tokens=10, new_tokens=4)
        engine.advance(0.03)

        assert (len(engine.running), len(engine.waiting)) == (2, 3)

    def test_one_that_comes_during_an_iteration_waits_for_its_end(self) -> None:
        engine = batching()
        engine.submit(0.0, prompt_tokens=100, new_tokens=1)
        engine.advance(0.05)
        late = engine.submit(0.05, prompt_tokens=10, new_tokens=1)

        assert times(engine.advance(LONG_S), late) == [pytest.approx(0.11)]

    def test_reading_alone_stops_the_writers(self) -> None:
        engine = batching(separate_prefill=True)
        writer = engine.submit(0.0, prompt_tokens=10, new_tokens=3)
        engine.advance(0.01)
        reader = engine.submit(0.01, prompt_tokens=250, new_tokens=1)
        tokens = engine.advance(LONG_S)

        assert times(tokens, reader) == [pytest.approx(0.02 + 0.25)]
        assert times(tokens, writer) == pytest.approx([0.02, 0.28])


class TestMemory:
    def test_a_cache_smaller_than_one_context_is_refused(self) -> None:
        with pytest.raises(ValueError, match="--kv-tokens"):
            batching(kv_tokens=1000)

    def test_a_prompt_is_admitted_only_when_its_blocks_are_free(self) -> None:
        engine = batching(kv_tokens=1024, chunk_tokens=2048)
        engine.submit(0.0, prompt_tokens=800, new_tokens=3)
        second = engine.submit(0.0, prompt_tokens=400, new_tokens=1)
        engine.advance(0.8)
        assert list(engine.waiting) == [second]

        assert times(engine.advance(LONG_S), second) == [pytest.approx(0.82 + 0.4)]

    def test_one_that_does_not_fit_holds_up_those_behind_it(self) -> None:
        engine = batching(kv_tokens=1024, chunk_tokens=2048)
        engine.submit(0.0, prompt_tokens=800, new_tokens=50)
        engine.submit(0.0, prompt_tokens=400, new_tokens=1)
        small = engine.submit(0.0, prompt_tokens=10, new_tokens=1)
        engine.advance(1.0)

        assert small in engine.waiting

    def test_writers_that_outgrow_the_cache_preempt_the_youngest(self) -> None:
        engine = batching(kv_tokens=1024, chunk_tokens=2048)
        old = engine.submit(0.0, prompt_tokens=500, new_tokens=100)
        young = engine.submit(0.0, prompt_tokens=480, new_tokens=100)
        tokens = engine.advance(LONG_S)

        assert engine.load().totals.preemptions == 1
        assert (old.is_preempted, young.is_preempted) == (False, True)
        assert len(times(tokens, old)) == len(times(tokens, young)) == 100
        gaps = [later - earlier for earlier, later in zip(times(tokens, young), times(tokens, young)[1:], strict=False)]
        # It waits until the old one has finished, and then its prompt and its answer so far are read again.
        assert max(gaps) > 0.48
        assert engine.blocks_free == 1024 // BLOCK_TOKENS

    def test_the_used_share_counts_whole_blocks(self) -> None:
        engine = batching(kv_tokens=1024)
        engine.submit(0.0, prompt_tokens=33, new_tokens=9)
        engine.advance(0.04)

        assert engine.load().kv_used_share == 3 / 64

    @pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (1, 1), (16, 1), (17, 2)])
    def test_a_begun_block_is_a_whole_one(self, tokens: int, blocks: int) -> None:
        assert blocks_for(tokens) == blocks


class TestCancellation:
    def test_it_frees_the_place_at_once(self) -> None:
        engine = batching(seqs_max=1)
        first = engine.submit(0.0, prompt_tokens=50, new_tokens=500)
        second = engine.submit(0.0, prompt_tokens=50, new_tokens=1)
        engine.advance(0.055)
        engine.cancel(first)

        assert not engine.running
        assert engine.blocks_free == 4096 // BLOCK_TOKENS
        assert times(engine.advance(LONG_S), second) == [pytest.approx(0.06 + 0.05)]
        assert first.written == 1

    def test_one_that_waits_is_never_worked_on(self) -> None:
        engine = batching(seqs_max=1)
        engine.submit(0.0, prompt_tokens=50, new_tokens=2)
        waiting = engine.submit(0.0, prompt_tokens=50, new_tokens=1)
        engine.cancel(waiting)
        engine.advance(LONG_S)

        assert waiting.read == waiting.written == 0
        assert engine.due_s is None

    def test_cancelling_twice_or_after_the_end_changes_nothing(self) -> None:
        engine = batching()
        sequence = engine.submit(0.0, prompt_tokens=5, new_tokens=1)
        engine.advance(LONG_S)
        engine.cancel(sequence)
        engine.cancel(sequence)

        assert engine.load().totals.requests == 1
        assert engine.blocks_free == 4096 // BLOCK_TOKENS


class TestSlots:
    def test_the_first_to_come_gets_the_next_free_slot(self) -> None:
        engine = slots()
        sequences = [engine.submit(0.0, prompt_tokens=10, new_tokens=count) for count in (5, 2, 1)]
        tokens = engine.advance(LONG_S)

        assert times(tokens, sequences[2])[0] > times(tokens, sequences[1])[-1]
        assert times(tokens, sequences[2])[0] < times(tokens, sequences[0])[-1]

    def test_the_least_recently_used_slot_is_taken(self) -> None:
        engine = slots(seqs_max=3)
        first = engine.submit(0.0, prompt_tokens=1, new_tokens=1)
        assert first.slot == 0
        engine.advance(1.0)

        assert engine.submit(1.0, prompt_tokens=1, new_tokens=1).slot == 1

    def test_writers_come_before_prompts_and_prompts_by_slot_number(self) -> None:
        engine = slots(seqs_max=3, chunk_tokens=11)
        writer = engine.submit(0.0, prompt_tokens=5, new_tokens=9)
        engine.advance(0.005)
        low = engine.submit(0.006, prompt_tokens=20, new_tokens=1)
        high = engine.submit(0.007, prompt_tokens=10, new_tokens=1)
        tokens = engine.advance(LONG_S)

        assert (writer.written, low.written, high.written) == (9, 1, 1)
        # Ten tokens of budget remain beside the writer: twice for the lower slot, then for the higher.
        assert times(tokens, low) == [pytest.approx(0.015 + 0.02 + 0.02)]
        assert times(tokens, high) == [pytest.approx(0.015 + 0.02 + 0.02 + 0.02)]

    def test_each_slot_tells_how_far_it_is(self) -> None:
        engine = slots(chunk_tokens=30)
        engine.submit(0.0, prompt_tokens=50, cached_tokens=10, new_tokens=5)
        engine.advance(0.03)
        reading, free = engine.load().slots

        assert reading is not None
        assert (reading.prompt_tokens, reading.read_tokens, reading.cached_tokens) == (50, 30, 10)
        assert free is None
        assert engine.load().kv_used_share == 40 / 2048


class TestClock:
    ARRIVALS = ((0.0, 300, 20), (0.004, 40, 30), (0.05, 700, 3), (0.06, 10, 40), (0.4, 90, 5), (9.0, 20, 2))

    def token_times(self, engine: BatchScheduler, *, tick_s: float | None) -> list[tuple[float, int]]:
        """All tokens, with the engine called at every tick, or only when something arrives."""
        seen: list[tuple[float, BatchedSequence]] = []
        sequences: list[BatchedSequence] = []
        now_s = 0.0
        for at_s, prompt, answer in self.ARRIVALS:
            while tick_s is not None and now_s + tick_s < at_s:
                now_s += tick_s
                seen += engine.advance(now_s)
            now_s = at_s
            seen += engine.advance(at_s)
            sequences.append(engine.submit(at_s, prompt_tokens=prompt, new_tokens=answer))
        seen += engine.advance(LONG_S)
        return [(at_s, sequences.index(sequence)) for at_s, sequence in seen]

    @pytest.mark.parametrize("make", [batching, slots], ids=["batching", "slots"])
    def test_token_times_depend_on_the_arrivals_only(self, make: Callable[[StepCurve], BatchScheduler]) -> None:
        expected = self.token_times(make(CURVE), tick_s=None)

        assert len(expected) == sum(answer for _, _, answer in self.ARRIVALS)
        for tick_s in (0.0007, 0.013, 0.3):
            assert self.token_times(make(CURVE), tick_s=tick_s) == expected

    def test_a_late_call_does_not_delay_what_follows(self) -> None:
        engine = batching()
        sequence = engine.submit(0.0, prompt_tokens=10, new_tokens=100)
        engine.advance(0.77777)

        assert times(engine.advance(LONG_S), sequence)[-1] == pytest.approx(0.01 + 99 * 0.01)

    def test_an_idle_engine_is_due_never(self) -> None:
        engine = batching()
        assert engine.due_s is None
        engine.submit(3.0, prompt_tokens=10, new_tokens=1)
        assert engine.due_s == pytest.approx(3.01)
        engine.advance(3.02)
        assert engine.due_s is None


def test_the_totals_are_those_of_a_metrics_page() -> None:
    engine = batching()
    for _ in range(2):
        engine.submit(0.0, prompt_tokens=50, new_tokens=3)
    engine.advance(LONG_S)
    totals = engine.load().totals

    assert (totals.prompt_tokens, totals.generation_tokens, totals.requests, totals.first_tokens) == (100, 6, 2, 2)
    assert totals.first_token_s == pytest.approx(0.05 + 0.05 + 0.06)
    assert totals.longest_tokens == 53
    assert totals.request_s == pytest.approx(totals.first_token_s + totals.decode_s)
