"""Continuous batching: writers first, prompts in order with what is left, slots used again."""

from __future__ import annotations

from bench.iteration_scheduler import Iteration, IterationScheduler, Sequence


def request(prompt: int, limit: int) -> Sequence:
    return Sequence([7] * prompt, limit)


def sizes(iteration: Iteration | None) -> tuple[int, list[tuple[int, int]]]:
    assert iteration is not None
    return len(iteration.decoding), [(piece.start, piece.tokens) for piece in iteration.pieces]


def scheduler_of(*requests: Sequence, slots: int = 4, chunk_tokens: int = 100) -> IterationScheduler:
    scheduler = IterationScheduler(slots, chunk_tokens)
    for each in requests:
        scheduler.submit(each)
    return scheduler


def test_a_long_prompt_is_read_in_chunks_and_its_last_gives_the_first_token() -> None:
    long = request(250, 2)
    scheduler = scheduler_of(long)
    found = [scheduler.next() for _ in range(5)]
    assert [sizes(each) for each in found[:4]] == [(0, [(0, 100)]), (0, [(100, 100)]), (0, [(200, 50)]), (1, [])]
    assert [each.writers for each in found if each is not None] == [[], [], [long], [long]]
    assert found[4] is None


def test_short_prompts_share_an_iteration_in_the_order_of_arrival() -> None:
    scheduler = scheduler_of(request(60, 1), request(60, 1), request(60, 1))
    assert sizes(scheduler.next()) == (0, [(0, 60), (0, 40)])
    assert sizes(scheduler.next()) == (0, [(40, 20), (0, 60)])


def test_writers_get_a_token_each_before_prompts_get_the_rest() -> None:
    scheduler = scheduler_of(request(10, 5), request(10, 5))
    scheduler.next()
    scheduler.submit(request(500, 1))
    assert sizes(scheduler.next()) == (2, [(0, 98)])


def test_a_writer_feeds_the_position_of_its_last_token() -> None:
    scheduler = scheduler_of(request(10, 3))
    scheduler.next()
    positions = [each.decoding[0][1] for each in iter(scheduler.next, None)]
    assert positions == [10, 11]


def test_who_finds_no_slot_waits_and_takes_the_first_that_is_free() -> None:
    first, second, third = request(5, 1), request(5, 3), request(5, 1)
    scheduler = scheduler_of(first, second, third, slots=2)
    scheduler.next()
    assert (first.slot, second.slot, len(scheduler.waiting)) == (0, 1, 1)
    iteration = scheduler.next()
    assert iteration is not None
    assert third.slot == 0
    assert iteration.writers == [second, third]


def test_a_cancelled_request_gives_its_slot_back_and_one_in_line_never_gets_one() -> None:
    first, waiting, last = request(5, 100), request(5, 100), request(5, 1)
    scheduler = scheduler_of(first, waiting, last, slots=1)
    scheduler.next()
    first.is_cancelled = waiting.is_cancelled = True
    iteration = scheduler.next()
    assert iteration is not None
    assert iteration.writers == [last]
    assert waiting.slot == -1


def test_the_cache_holds_what_was_read_and_written() -> None:
    scheduler = scheduler_of(request(10, 5), request(20, 5))
    assert scheduler.kv_tokens() == 0
    scheduler.next()
    scheduler.next()
    assert scheduler.kv_tokens() == 10 + 20 + 2 * 2
