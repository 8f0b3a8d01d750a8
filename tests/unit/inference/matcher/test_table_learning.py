"""What jobs teach about a node: reading and writing apart, adjusted for the company that they had."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import pytest

from sparewatt.core.ids import MatchId, ModelId
from sparewatt.core.lessons import SLOWER_MAX
from sparewatt.inference.matcher.columns import ColumnField
from sparewatt.inference.matcher.formula import BALANCED
from sparewatt.inference.matcher.match import match
from sparewatt.inference.matcher.node_row import OVERHEAD_FROM_S, OVERHEAD_S_MAX, ColumnPosition
from sparewatt.inference.matcher.reservation import Reservation
from sparewatt.inference.matcher.table import (
    STEPS_MIN,
    TIMINGS_MAX,
    NodeTable,
)
from sparewatt.protocol.link.node_report import NodeLoad, Speed
from tests.unit.inference.nodes import MODEL, NOW_S, a_job, a_model, columns_of, node_id, situation, some_specs

ONE = node_id(1)
SPEED = Speed(
    prefill_tps=2000.0,
    decode_tps=50.0,
    ttft_s=0.05,
    step_per_job_s=0.002,
    prefill_square_s=2e-8,
    step_per_token_s=2e-7,
    prefill_pace=0.9,
    decode_pace=0.1,
)
RTT_S = 0.04


def times(speed: Speed, *, reading: float = 1.0, writing: float = 1.0) -> Speed:
    """A curve by which reading and writing take so many times longer."""
    return msgspec.structs.replace(
        speed,
        prefill_tps=speed.prefill_tps / reading,
        ttft_s=speed.ttft_s * reading,
        prefill_square_s=speed.prefill_square_s * reading,
        decode_tps=speed.decode_tps / writing,
        step_per_job_s=(speed.step_per_job_s or 0.0) * writing,
        step_per_token_s=(speed.step_per_token_s or 0.0) * writing,
    )


class SentJob(NamedTuple):
    at_s: float
    prompt_tokens: int
    output_tokens: int


class CurveServer:
    """Reads prompts in the order of arrival and writes in a batch, exactly by a curve; the table sees its tokens."""

    def __init__(self, table: NodeTable, speed: Speed) -> None:
        self.table, self.speed = table, speed
        self.now_s = NOW_S

    def run(self, jobs: Sequence[SentJob]) -> None:
        """Send the jobs, each so many seconds from now, and let the server finish them all."""
        began_s, coming = self.now_s, sorted(jobs)
        arriving: list[tuple[float, SentJob, Reservation]] = []
        queue: list[tuple[SentJob, Reservation]] = []
        writers: list[tuple[float, int, SentJob, Reservation]] = []
        steps, left_s, number = 0.0, 0.0, 0
        while coming or arriving or queue or writers:
            contexts = sum(job.prompt_tokens + job.output_tokens / 2 for _, _, job, _ in writers)
            step_s = self.speed.step_s(len(writers), contexts) if writers else math.inf
            read_pace, write_pace = 1.0, 1.0
            if queue and writers:
                read_pace, write_pace = self.speed.prefill_pace or 1.0, self.speed.decode_pace or 1.0
            due = {
                "send": began_s + coming[0].at_s if coming else math.inf,
                "arrive": arriving[0][0] if arriving else math.inf,
                "read": self.now_s + left_s / read_pace if queue else math.inf,
                "end": self.now_s + (writers[0][0] - steps) * step_s / write_pace if writers else math.inf,
            }
            event = min(due, key=lambda name: due[name])
            passed_s = due[event] - self.now_s
            self.now_s = due[event]
            steps += passed_s * write_pace / step_s
            left_s -= passed_s * read_pace
            if event == "send":
                job = coming.pop(0)
                wanted = a_job(prompt_tokens=job.prompt_tokens, output_tokens=job.output_tokens)
                held = self.table.reserve(ONE, wanted, now_s=self.now_s)
                arriving.append((self.now_s + RTT_S, job, held))
            elif event == "arrive":
                _, job, held = arriving.pop(0)
                queue.append((job, held))
                left_s = left_s if len(queue) > 1 else self.speed.prefill_s(job.prompt_tokens)
            elif event == "read":
                job, held = queue.pop(0)
                number += 1
                self.table.note_first_token(held, now_s=self.now_s)
                heapq.heappush(writers, (steps + job.output_tokens, number, job, held))
                left_s = self.speed.prefill_s(queue[0][0].prompt_tokens) if queue else 0.0
            else:
                _, _, job, held = heapq.heappop(writers)
                self.table.note_answer(held, steps=job.output_tokens, now_s=self.now_s)
                self.table.release(held, now_s=self.now_s)


def a_server(
    *, claims: Speed = SPEED, reading: float = 1.0, writing: float = 1.0, gpu: str = "unknown", slots: int = 16
) -> CurveServer:
    """One that is so many times slower than it claims."""
    table = NodeTable()
    table.connect(ONE, some_specs(a_model(measured=claims), gpu=gpu, slots=slots), now_s=NOW_S)
    table.set_rtt(ONE, RTT_S, now_s=NOW_S)
    return CurveServer(table, times(claims, reading=reading, writing=writing))


def position_of(table: NodeTable) -> ColumnPosition:
    row = table.get(ONE)
    assert row is not None
    return row.positions[MODEL]


def learned(server: CurveServer) -> tuple[float, float]:
    """Times longer for reading and for writing."""
    position = position_of(server.table)
    return position.reading.factor, position.writing.factor


def one_by_one(n: int, *, prompt: int = 2000, output: int = 100, every_s: float = 100.0) -> list[SentJob]:
    return [SentJob(number * every_s, prompt, output) for number in range(n)]


# alone


def test_a_node_that_does_as_it_says_is_believed() -> None:
    server = a_server()
    server.run(one_by_one(20))
    assert learned(server) == pytest.approx((1.0, 1.0), rel=0.01)
    assert min(position_of(server.table).reading.count, position_of(server.table).writing.count) >= 18


@pytest.mark.parametrize(("reading", "writing"), [(3.0, 1.0), (1.0, 3.0), (2.0, 5.0), (1.0, 0.7)])
def test_reading_and_writing_are_learned_apart(reading: float, writing: float) -> None:
    server = a_server(reading=reading, writing=writing)
    server.run(one_by_one(60))
    assert learned(server) == pytest.approx((reading, writing), rel=0.03)


def test_a_liar_that_claims_five_times_its_speed_is_learned_within_a_few_jobs() -> None:
    server = a_server(reading=5.0, writing=5.0)
    server.run(one_by_one(6))
    assert min(learned(server)) > 3.5
    assert columns_of(server.table)[ColumnField.PREFILL_TOKEN_S] > 3.5 / SPEED.prefill_tps
    assert columns_of(server.table)[ColumnField.STEP_S] > 3.5 / SPEED.decode_tps


def test_a_liar_does_not_go_on_winning() -> None:
    """However absurd a figure passes the report's bounds, some jobs teach what it is worth."""
    server = a_server(claims=Speed(prefill_tps=1e7, decode_tps=1e7), reading=1e7, writing=1e7)
    honest = node_id(2)
    server.table.connect(honest, some_specs(a_model(measured=Speed(20.0, 1.0))), now_s=NOW_S)
    wins = 0
    for number in range(200):
        server.table.set_load(honest, NodeLoad(), now_s=server.now_s)
        server.table.set_load(ONE, NodeLoad(), now_s=server.now_s)
        wanted = a_job(id=MatchId(f"m{number}"), prompt_tokens=10, output_tokens=20)
        best = match(wanted, server.table, situation(now_s=server.now_s), ranking=BALANCED, seed=1).best
        assert best is not None
        if best.node_id == ONE:
            wins += 1
            server.run([SentJob(0.0, 10, 20)])
    assert wins < 20
    assert max(learned(server)) <= SLOWER_MAX


def test_a_node_is_raised_no_higher_than_its_cards_memory_allows() -> None:
    server = a_server(writing=0.2, gpu="RTX 4090")
    ceiling = position_of(server.table).figures.faster_max
    assert 1.5 < ceiling < 4.0
    server.run(one_by_one(40))
    assert learned(server)[1] == pytest.approx(1 / ceiling)


# the way there

SHORT = 100
"""Tokens of a prompt that is read in less than OVERHEAD_FROM_S."""


def overhead_s(server: CurveServer) -> float:
    row = server.table.get(ONE)
    assert row is not None
    return row.overhead_s


def first_tokens(server: CurveServer, n: int, *, late_s: float, prompt: int = SHORT) -> None:
    """Jobs one by one whose first token is so much later than round trip and prefill."""
    for _ in range(n):
        held = server.table.reserve(ONE, a_job(prompt_tokens=prompt), now_s=server.now_s)
        server.now_s += RTT_S + SPEED.prefill_s(prompt) + late_s
        server.table.note_first_token(held, now_s=server.now_s)
        server.table.release(held, now_s=server.now_s)


def test_what_a_first_token_takes_beyond_prefill_is_learned_from_short_prompts() -> None:
    server = a_server()
    first_tokens(server, 100, late_s=0.02)
    learned_s, (reading, _) = overhead_s(server), learned(server)
    assert SPEED.prefill_s(SHORT) < OVERHEAD_FROM_S
    assert learned_s + SPEED.prefill_s(SHORT) * reading == pytest.approx(0.02 + SPEED.prefill_s(SHORT), rel=0.05)
    assert columns_of(server.table)[ColumnField.RTT_S] == pytest.approx(RTT_S + learned_s)


def test_a_long_prompt_says_nothing_about_the_way_there() -> None:
    server = a_server()
    first_tokens(server, 20, late_s=0.02, prompt=4000)
    assert overhead_s(server) == 0.0


def test_the_overhead_is_bounded_and_never_below_zero() -> None:
    server = a_server()
    first_tokens(server, 200, late_s=1000.0)
    assert 0.0 < overhead_s(server) <= OVERHEAD_S_MAX
    early = a_server()
    first_tokens(early, 20, late_s=-0.5 * SPEED.prefill_s(SHORT))
    assert 0.0 <= overhead_s(early) < 1e-12


# in company


def test_eight_jobs_at_once_teach_nothing_if_they_follow_the_curve() -> None:
    """Company makes every step longer: that is in the curve, so it is no lesson."""
    server = a_server()
    for _ in range(10):
        server.run([SentJob(number * 0.5, 400, 300) for number in range(8)])
    assert learned(server) == pytest.approx((1.0, 1.0), rel=0.1)
    assert position_of(server.table).writing.count == 80


def test_eight_jobs_at_once_teach_that_a_node_is_slow() -> None:
    server = a_server(writing=3.0)
    for _ in range(10):
        server.run([SentJob(number * 0.5, 400, 300) for number in range(8)])
    reading, writing = learned(server)
    assert reading == pytest.approx(1.0, rel=0.15)
    assert writing == pytest.approx(3.0, rel=0.15)


def test_a_burst_of_prompts_teaches_how_fast_they_are_read() -> None:
    server = a_server(reading=3.0)
    for _ in range(10):
        server.run([SentJob(0.0, 1500, 200) for _ in range(6)])
    reading, writing = learned(server)
    assert reading == pytest.approx(3.0, rel=0.1)
    assert writing == pytest.approx(1.0, rel=0.25)


def test_prompts_of_one_chunk_are_true_in_their_sum() -> None:
    """The first of them seems to take long, the others no time at all."""
    server = a_server()
    server.run(one_by_one(1))
    for _ in range(10):
        held = [server.table.reserve(ONE, a_job(prompt_tokens=1000), now_s=server.now_s) for _ in range(4)]
        server.now_s += RTT_S + 4 * SPEED.prefill_s(1000) / 0.9
        for item in held:
            server.table.note_first_token(item, now_s=server.now_s)
        for item in held:
            server.table.release(item, now_s=server.now_s)
    assert learned(server)[0] == pytest.approx(1.0, abs=0.15)


# what teaches nothing


@pytest.mark.parametrize("slower", [1.0, 5.0])
def test_an_answer_in_one_piece_teaches_how_fast_it_was_written(slower: float) -> None:
    """Its first token is not seen: its prompt is taken to have been read as fast as the figures say."""
    server = a_server()
    for _ in range(5):
        held = server.table.reserve(ONE, a_job(prompt_tokens=500), now_s=server.now_s, is_streamed=False)
        server.now_s += SPEED.prefill_s(500) + slower * 200 / SPEED.decode_tps
        server.table.note_first_token(held, now_s=server.now_s)
        server.table.note_answer(held, steps=200, now_s=server.now_s)
        server.table.release(held, now_s=server.now_s)
    reading, writing = learned(server)
    assert reading == 1.0
    assert writing == pytest.approx(slower, rel=0.1)


def test_a_few_steps_teach_nothing() -> None:
    server = a_server(writing=3.0)
    server.run(one_by_one(10, output=STEPS_MIN - 1))
    assert learned(server)[1] == 1.0
    server.run(one_by_one(10, output=STEPS_MIN))
    assert learned(server)[1] > 1.5


def test_prompts_of_others_on_the_node_teach_nothing_about_reading() -> None:
    server = a_server(reading=5.0)
    server.table.set_load(ONE, NodeLoad(foreign=1), now_s=NOW_S)
    server.run(one_by_one(10))
    assert learned(server)[0] == 1.0


def test_a_job_that_waited_for_a_slot_teaches_nothing_about_reading() -> None:
    server = a_server(slots=1)
    held = [server.table.reserve(ONE, a_job(), now_s=NOW_S) for _ in range(2)]
    server.table.note_first_token(held[0], now_s=NOW_S + 1.0)
    server.table.note_first_token(held[1], now_s=NOW_S + 60.0)
    assert learned(server)[0] == 1.0


def test_a_job_that_ends_before_its_first_token_teaches_nothing_about_reading() -> None:
    server = a_server()
    server.run(one_by_one(2))
    before = learned(server), position_of(server.table).reading.count
    refused = server.table.reserve(ONE, a_job(), now_s=server.now_s)
    server.table.release(refused, now_s=server.now_s + 50.0)
    server.table.note_first_token(refused, now_s=server.now_s + 60.0)
    assert (learned(server), position_of(server.table).reading.count) == before


@pytest.mark.parametrize("state", ["on_disk", "loading"])
def test_loading_a_model_teaches_nothing_about_reading(state: str) -> None:
    server, specs = a_server(), some_specs(a_model(measured=SPEED, state=state), gpu="unknown", slots=16)
    server.run(one_by_one(2))
    before = learned(server), overhead_s(server)
    server.table.set_specs(ONE, specs)
    held = server.table.reserve(ONE, a_job(prompt_tokens=SHORT), now_s=server.now_s)
    server.table.set_specs(ONE, some_specs(a_model(measured=SPEED), gpu="unknown", slots=16))
    server.now_s += 20.0
    server.table.note_first_token(held, now_s=server.now_s)
    server.table.release(held, now_s=server.now_s)
    assert (learned(server), overhead_s(server)) == before


def test_two_models_at_once_teach_nothing_about_reading() -> None:
    table = NodeTable()
    models = (a_model(measured=SPEED), a_model(id="another", measured=SPEED))
    table.connect(ONE, some_specs(*models), now_s=NOW_S)
    for number in range(5):
        at_s = NOW_S + 100.0 * number
        held = [table.reserve(ONE, a_job(model=ModelId(model.id)), now_s=at_s) for model in models]
        for item in held:
            at_s += 40.0
            table.note_first_token(item, now_s=at_s)
        for item in held:
            table.release(item, now_s=at_s)
    assert position_of(table).reading.factor == 1.0


# what outlives a change


def test_a_reservation_of_a_model_that_is_gone_teaches_nothing() -> None:
    server = a_server()
    held = server.table.reserve(ONE, a_job(), now_s=NOW_S)
    server.table.set_specs(ONE, some_specs(a_model(id="another")))
    server.table.note_first_token(held, now_s=NOW_S + 1.0)
    server.table.note_answer(held, steps=100, now_s=NOW_S + 2.0)
    server.table.release(held, now_s=NOW_S + 2.0)
    row = server.table.get(ONE)
    assert row is not None
    assert row.own_jobs == 0


def test_neither_a_new_link_nor_a_model_that_leaves_for_a_while_washes_lessons_off() -> None:
    server = a_server(reading=4.0, writing=4.0)
    server.run(one_by_one(10))
    before = learned(server)
    specs = some_specs(a_model(measured=SPEED), gpu="unknown", slots=16)
    server.table.disconnect(ONE, unix_s=0.0)
    server.table.connect(ONE, specs, now_s=server.now_s)
    assert learned(server) == before
    server.table.set_specs(ONE, some_specs(a_model(id="another")))
    server.table.set_specs(ONE, specs)
    assert learned(server) == before
    assert columns_of(server.table)[ColumnField.PREFILL_TOKEN_S] == pytest.approx(before[0] / SPEED.prefill_tps)


def test_lessons_about_models_that_left_are_bounded() -> None:
    table = NodeTable()
    table.connect(ONE, some_specs(), now_s=NOW_S)
    row = table.get(ONE)
    assert row is not None
    for number in range(TIMINGS_MAX + 5):
        table.set_specs(ONE, some_specs(a_model(id=f"model-{number}")))
        row.positions[f"model-{number}"].timed_jobs = 1
    table.set_specs(ONE, some_specs(a_model()))
    assert len(row.timings) == TIMINGS_MAX
    assert f"model-{TIMINGS_MAX + 4}" in row.timings
