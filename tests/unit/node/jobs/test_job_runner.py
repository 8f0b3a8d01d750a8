from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sparewatt.core.limits import NODE_QUEUE_PER_SLOT
from sparewatt.node.backends.backend import Backend
from sparewatt.node.facts.server_facts import KV_BYTES_DEFAULT
from sparewatt.node.jobs import job_runner
from sparewatt.node.jobs.ttft_estimator import PREFILL_SHARE_DECAY_S
from sparewatt.protocol.link.frames import JobReplyHead, Opcode, decode_message, encode_frame
from sparewatt.protocol.link.node_report import NodeLoad, Speed
from sparewatt.testing import EngineSettings, expected_text, render_chat
from sparewatt.testing.clocks import ManualClock
from tests.unit.node.rig import MODEL, Rig, ScriptedBackend, chat_body, rigged
from tests.waiting import until


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with refreshed_rig(tmp_path) as rig:
        yield rig


@asynccontextmanager
async def refreshed_rig(data_dir: Path, **changes: Any) -> AsyncIterator[Rig]:
    """A node that knows its models."""
    async with rigged(data_dir, **changes) as rig:
        await rig.inventory.refresh()
        yield rig


def counts(load: NodeLoad | None) -> tuple[int, int, int, bool]:
    assert load is not None
    return load.running, load.queued, load.foreign, load.draining


def expected(content: str) -> str:
    return expected_text(render_chat([{"role": "user", "content": content}]))


def head_of(rig: Rig, stream: int) -> JobReplyHead:
    return decode_message(rig.frames(stream)[0].payload, JobReplyHead)


async def occupy(rig: Rig, *streams: int) -> None:
    """Jobs that stay until they are cancelled."""
    await rig.fault("stall_after_tokens", after_tokens=1, count=len(streams))
    for stream in streams:
        rig.send(stream)
    await until(lambda: all(rig.data(stream) for stream in streams))


# answers


async def test_a_streamed_answer_is_passed_on_byte_for_byte(rig: Rig) -> None:
    rig.send(1, body=chat_body("one two"))
    end = await rig.ended(1)
    assert rig.ops(1) == [Opcode.HEAD, Opcode.DATA, Opcode.END]
    assert head_of(rig, 1) == JobReplyHead(status=200, content_type="text/event-stream")
    events = rig.data(1).decode().split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-2]]
    said = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
    assert said == expected("one two")
    assert end.first_byte_s is not None
    assert 0 <= end.first_byte_s <= end.duration_s


async def test_a_whole_answer_comes_in_one_piece(rig: Rig) -> None:
    rig.send(1, body=chat_body("one two", stream=False), is_streamed=False)
    await rig.ended(1)
    assert head_of(rig, 1) == JobReplyHead(status=200, content_type="application/json")
    reply = json.loads(rig.data(1))
    assert reply["object"] == "chat.completion"
    assert reply["choices"][0]["message"]["content"] == expected("one two")
    assert reply["usage"]["completion_tokens"] > 0


async def test_many_jobs_run_at_once_and_do_not_mix(rig: Rig) -> None:
    for stream in range(1, 21):
        rig.send(stream, body=chat_body(f"job {stream}", stream=False), is_streamed=False)
    for stream in range(1, 21):
        await rig.ended(stream)
        assert json.loads(rig.data(stream))["choices"][0]["message"]["content"] == expected(f"job {stream}")


@pytest.mark.parametrize("status", [400, 429, 500, 503])
async def test_an_error_of_the_server_is_passed_on_as_it_is(rig: Rig, status: int) -> None:
    await rig.fault("status", status=status)
    rig.send(1)
    await rig.ended(1)
    assert head_of(rig, 1).status == status
    assert "error" in json.loads(rig.data(1))


# refusals


async def test_a_node_that_drains_refuses(rig: Rig) -> None:
    rig.jobs.draining = True
    rig.send(1)
    fail = await rig.failed(1)
    assert (fail.code, counts(fail.load)) == ("refused", counts(NodeLoad(draining=True)))


async def test_a_model_that_is_not_there_is_refused(rig: Rig) -> None:
    rig.send(1, model="other")
    assert (await rig.failed(1)).code == "refused"


async def test_a_node_whose_model_server_left_refuses(tmp_path: Path) -> None:
    async with rigged(tmp_path) as rig:
        rig.send(1)
        fail = await rig.failed(1)
    assert (fail.code, fail.message) == ("refused", "the model is not here any more")
    assert fail.ttft_s == 0.0


async def test_a_full_node_refuses_the_next_job_and_takes_it_when_there_is_room(tmp_path: Path) -> None:
    async with refreshed_rig(tmp_path, engine=EngineSettings(models=(MODEL,), slots=1)) as rig:
        await occupy(rig, 1)
        n_jobs = 1 + NODE_QUEUE_PER_SLOT
        for stream in range(2, n_jobs + 2):
            rig.send(stream)
        fail = await rig.failed(n_jobs + 1)
        assert (fail.code, fail.message) == ("refused", "the node is full")
        assert counts(fail.load) == counts(NodeLoad(running=1, queued=NODE_QUEUE_PER_SLOT))
        rig.link.receive(encode_frame(Opcode.CANCEL, 1))
        for stream in range(2, n_jobs + 1):
            await rig.ended(stream)


# failures


async def test_an_unreachable_server_fails_the_job_and_is_polled_again(tmp_path: Path) -> None:
    async with rigged(tmp_path) as rig:
        await rig.inventory.refresh()
        await rig.fault("drop_before_head")
        rig.send(1)
        assert (await rig.failed(1)).code == "backend_unreachable"
        assert rig.ops(1) == [Opcode.FAIL]
        assert rig.inventory._refresh_wanted.is_set()


async def test_a_server_that_breaks_off_fails_the_job_after_what_was_streamed(rig: Rig) -> None:
    await rig.fault("drop_after_tokens", after_tokens=3)
    rig.send(1)
    assert (await rig.failed(1)).code == "backend_broke"
    assert rig.ops(1) == [Opcode.HEAD, Opcode.DATA, Opcode.FAIL]


@pytest.mark.parametrize("kind", ["drop_after_tokens", "garbage", "error_event"])
async def test_a_whole_answer_that_breaks_is_not_passed_on_in_part(rig: Rig, kind: str) -> None:
    await rig.fault(kind, after_tokens=3)
    rig.send(1, body=chat_body(stream=False), is_streamed=False)
    assert (await rig.failed(1)).code == "backend_broke"
    assert rig.data(1) == b""


@pytest.mark.parametrize("body", [b"nonsense", b"[]", b'{"\xff":1}'])
async def test_a_request_that_is_no_json_fails_its_job_alone(rig: Rig, body: bytes) -> None:
    rig.send(1, body=body, is_streamed=False)
    assert (await rig.failed(1)).code == "protocol"
    rig.send(2)
    await rig.ended(2)


@pytest.mark.parametrize(
    "backend",
    [ScriptedBackend(status=999), ScriptedBackend(content_type="x" * 501)],
    ids=["status", "content-type"],
)
async def test_a_head_that_a_gateway_would_not_take_fails_its_job_alone(rig: Rig, backend: Backend) -> None:
    rig.jobs.backend = backend
    rig.send(1)
    assert (await rig.failed(1)).code == "backend_broke"
    assert rig.ops(1) == [Opcode.FAIL]


@pytest.mark.parametrize(
    "chunk", [{"choices": [5]}, {"choices": {"a": 1}}, {"choices": [{"delta": {"content": 5}}] * 2}, {"choices": 7}]
)
async def test_a_stream_with_numbers_where_objects_should_be_fails_its_job(rig: Rig, chunk: dict[str, Any]) -> None:
    rig.jobs.backend = ScriptedBackend([b"data: " + msgspec.json.encode(chunk) + b"\n\n", b"data: [DONE]\n\n"])
    rig.send(1, is_streamed=False)
    assert (await rig.failed(1)).code == "backend_broke"


async def test_a_server_that_never_streams_is_understood(rig: Rig) -> None:
    rig.jobs.backend = ScriptedBackend([b'{"choices":[]}'], content_type="application/json")
    rig.send(1, is_streamed=False)
    await rig.ended(1)
    assert rig.data(1) == b'{"choices":[]}'


class Crashing(ScriptedBackend):
    async def _stream(self) -> AsyncIterator[bytes]:
        yield b"data: "
        raise ZeroDivisionError


async def test_an_unexpected_error_fails_its_job_and_frees_its_slot(rig: Rig) -> None:
    rig.jobs.backend = Crashing()
    rig.send(1)
    fail = await rig.failed(1)
    assert (fail.code, counts(fail.load)) == ("protocol", counts(NodeLoad()))
    assert await rig.jobs.wait_until_idle(1.0)


# load


async def test_the_load_that_goes_with_an_end_does_not_count_the_job_that_ended(rig: Rig) -> None:
    await occupy(rig, 1, 2)
    assert counts(rig.jobs.load()) == counts(NodeLoad(running=2))
    rig.send(3)
    assert counts((await rig.ended(3)).load) == counts(NodeLoad(running=2))
    rig.link.receive(encode_frame(Opcode.CANCEL, 1))
    await until(lambda: rig.jobs.count() == 1)
    rig.send(4)
    assert counts((await rig.ended(4)).load) == counts(NodeLoad(running=1))


async def test_the_load_that_goes_with_a_failure_does_not_count_the_job_that_failed(rig: Rig) -> None:
    await rig.fault("drop_after_tokens", after_tokens=1)
    rig.send(1)
    assert counts((await rig.failed(1)).load) == counts(NodeLoad())


async def test_own_jobs_do_not_count_as_foreign_after_they_ended(rig: Rig) -> None:
    await occupy(rig, 1)
    await rig.inventory.refresh()
    assert (rig.jobs.load().running, rig.jobs.load().foreign) == (1, 0)
    rig.link.receive(encode_frame(Opcode.CANCEL, 1))
    await until(lambda: rig.jobs.count() == 0)
    assert (rig.jobs.load().running, rig.jobs.load().foreign) == (0, 0)


async def test_requests_that_did_not_come_from_this_node_are_foreign(rig: Rig) -> None:
    await rig.fault("stall_after_tokens", after_tokens=1)
    async with rig.session.post(f"{rig.url}/v1/chat/completions", data=chat_body()):
        await rig.inventory.refresh()
    assert (rig.jobs.load().running, rig.jobs.load().foreign) == (0, 1)


async def test_the_kv_capacity_is_reported_where_the_server_reports_it(tmp_path: Path) -> None:
    async with refreshed_rig(
        tmp_path, engine=EngineSettings(models=(MODEL,), slots=3, n_ctx=1000, n_params=10**9)
    ) as rig:
        per_token = rig.inventory.specs.models[0].kv_bytes_per_token
        assert rig.jobs.load().kv_capacity_bytes == 3 * 1000 * per_token > 0


async def test_the_kv_capacity_of_a_model_of_unknown_size_is_that_of_a_usual_one(tmp_path: Path) -> None:
    engine = EngineSettings(models=("a",), slots=3, n_ctx=1000, n_params=0)
    async with refreshed_rig(tmp_path, engine=engine) as rig:
        assert rig.jobs.load().kv_capacity_bytes == 3 * 1000 * KV_BYTES_DEFAULT


async def test_the_kv_capacity_is_unknown_where_a_token_takes_another_room_in_each_model(tmp_path: Path) -> None:
    async with refreshed_rig(tmp_path, engine=EngineSettings(models=("a-8b", "b-70b"), n_params=0)) as rig:
        assert rig.jobs.load().kv_capacity_bytes is None


async def test_the_prefill_share_is_measured(tmp_path: Path) -> None:
    clock = ManualClock()
    async with refreshed_rig(tmp_path, clock=clock) as rig:
        await rig.fault("stall_after_tokens", after_tokens=0)
        rig.send(1)
        clock.advance(PREFILL_SHARE_DECAY_S)
        assert rig.jobs.load().prefill_share == pytest.approx(0.63, abs=0.01)
        rig.link.receive(encode_frame(Opcode.CANCEL, 1))
        await until(lambda: rig.jobs.count() == 0)
        clock.advance(4 * PREFILL_SHARE_DECAY_S)
        assert rig.jobs.load().prefill_share == pytest.approx(0.01, abs=0.01)


# refusing what would come too late

KNOWN = Speed(prefill_tps=100.0, decode_tps=10.0, ttft_s=0.3)


@asynccontextmanager
async def measured_rig(data_dir: Path, *, slots: int = 8) -> AsyncIterator[Rig]:
    """A node of measured_rig speed, whose clock stands still."""
    async with refreshed_rig(data_dir, clock=ManualClock(), engine=EngineSettings(models=(MODEL,), slots=slots)) as rig:
        model = msgspec.structs.replace(rig.inventory.specs.models[0], measured=KNOWN)
        rig.inventory.specs = msgspec.structs.replace(rig.inventory.specs, models=(model,))
        yield rig


async def stall(rig: Rig, *streams: int, prompt_tokens: int) -> None:
    """Jobs whose prompts are not read yet."""
    await rig.fault("stall_after_tokens", after_tokens=0, count=len(streams))
    for stream in streams:
        rig.send(stream, prompt_tokens=prompt_tokens)


async def test_a_job_whose_promise_can_be_kept_is_taken(tmp_path: Path) -> None:
    async with measured_rig(tmp_path) as rig:
        rig.send(1, promised_ttft_s=1.0, prompt_tokens=100)
        await rig.ended(1)


async def test_a_job_behind_a_prefill_backlog_is_refused_with_the_current_load(tmp_path: Path) -> None:
    async with measured_rig(tmp_path) as rig:
        await stall(rig, 1, prompt_tokens=1000)
        rig.send(2, promised_ttft_s=1.0, prompt_tokens=100)
        fail = await rig.failed(2)
    assert fail.code == "refused"
    assert fail.message == "the first token would take 11.9 s here, 1.0 s were counted on"
    assert fail.ttft_s == pytest.approx(11.9, abs=0.05)
    assert fail.load is not None
    assert fail.load.running == 1


async def test_the_same_job_is_taken_when_nothing_was_promised(tmp_path: Path) -> None:
    async with measured_rig(tmp_path) as rig:
        await stall(rig, 1, prompt_tokens=1000)
        rig.send(2, promised_ttft_s=0.0, prompt_tokens=100)
        await rig.ended(2)


async def test_the_same_job_is_taken_when_its_gateway_knew_of_the_wait(tmp_path: Path) -> None:
    async with measured_rig(tmp_path) as rig:
        await stall(rig, 1, prompt_tokens=1000)
        rig.send(2, promised_ttft_s=15.0, prompt_tokens=100)
        await rig.ended(2)


async def test_a_job_beyond_the_slots_waits_for_an_answer_to_end(tmp_path: Path) -> None:
    async with measured_rig(tmp_path, slots=1) as rig:
        await occupy(rig, 1)
        rig.send(2, promised_ttft_s=5.0, prompt_tokens=100)
        expected_s = (await rig.failed(2)).ttft_s
        assert 25.6 < expected_s < 25.6 + 1.3  # 256 tokens at 10/s, then at most 1.3 s to the first token


async def test_a_model_that_still_loads_is_counted_in(rig: Rig) -> None:
    model = msgspec.structs.replace(rig.inventory.specs.models[0], state="loading")
    rig.inventory.specs = msgspec.structs.replace(rig.inventory.specs, models=(model,))
    rig.send(1, promised_ttft_s=1.0)
    assert (await rig.failed(1)).code == "refused"


# stopping


async def cancelled_in_engine(rig: Rig) -> int:
    stats = await rig.stats()
    return stats["cancelled"] if stats["running"] == 0 else -1


async def until_cancelled(rig: Rig, n_jobs: int) -> None:
    async with asyncio.timeout(20):
        while await cancelled_in_engine(rig) != n_jobs:  # noqa: ASYNC110 (it lies behind HTTP)
            await asyncio.sleep(0.005)


async def test_a_cancel_stops_the_request_at_the_model_server(rig: Rig) -> None:
    await occupy(rig, 1)
    rig.link.receive(encode_frame(Opcode.CANCEL, 1))
    await until_cancelled(rig, 1)
    assert rig.ops(1) == [Opcode.HEAD, Opcode.DATA]


async def test_a_whole_answer_is_stopped_too(rig: Rig) -> None:
    await rig.fault("stall_after_tokens", after_tokens=1)
    rig.send(1, body=chat_body(stream=False), is_streamed=False)
    await until(lambda: rig.ops(1) == [Opcode.HEAD])
    rig.link.receive(encode_frame(Opcode.CANCEL, 1))
    await until_cancelled(rig, 1)


async def test_a_lost_link_stops_every_request(rig: Rig) -> None:
    await occupy(rig, 1, 2, 3)
    rig.link.on_lost()
    await until_cancelled(rig, 3)
    assert counts(rig.jobs.load()) == counts(NodeLoad())


async def test_a_job_cancelled_before_it_began_is_gone(rig: Rig) -> None:
    rig.send(1)
    rig.link.receive(encode_frame(Opcode.CANCEL, 1))
    assert await rig.jobs.wait_until_idle(5.0)
    assert rig.frames(1) == []
    assert (await rig.stats())["running"] == 0


async def test_idle_is_when_the_last_job_ended(rig: Rig) -> None:
    assert await rig.jobs.wait_until_idle(0)
    await occupy(rig, 1)
    assert not await rig.jobs.wait_until_idle(0.01)
    await rig.jobs.close()
    assert await rig.jobs.wait_until_idle(0)


async def test_jobs_without_a_first_token_fail_when_the_server_stops_answering(rig: Rig) -> None:
    await rig.fault("stall_after_tokens", after_tokens=0)
    await occupy(rig, 1)
    rig.jobs.fail_waiting("the model server does not answer")
    assert (await rig.failed(1)).code == "backend_timeout"
    assert rig.jobs.count() == 0


async def test_jobs_past_their_first_token_are_left_to_the_gateway(rig: Rig) -> None:
    await rig.fault("stall_after_tokens", after_tokens=3)
    await occupy(rig, 1)
    await until(lambda: all(turn.first_token_at_s is not None for turn in rig.jobs._ttft_estimator.slot_uses.values()))
    rig.jobs.fail_waiting("the model server does not answer")
    assert rig.jobs.count() == 1


# other endpoints


async def test_a_completion_is_streamed_by_the_server_and_sent_whole(rig: Rig) -> None:
    body = json.dumps({"model": MODEL, "prompt": "Once", "max_tokens": 4}).encode()
    rig.send(1, body=body, is_streamed=False, path="/v1/completions")
    await rig.until_over(1)
    whole = json.loads(rig.data(1))
    assert whole["object"] == "text_completion"
    assert whole["choices"][0]["text"] == expected_text("Once", max_tokens=4)
    assert whole["usage"]["completion_tokens"] == 4


async def test_embeddings_are_passed_on_unchanged(rig: Rig) -> None:
    body = json.dumps({"model": MODEL, "input": ["a", "b"]}).encode()
    rig.send(1, body=body, is_streamed=False, path="/v1/embeddings")
    await rig.until_over(1)
    assert [item["index"] for item in json.loads(rig.data(1))["data"]] == [0, 1]


# comparing jobs with the curve


class Noted(list[tuple[str, str]]):
    """What was compared; the engine never makes a job wait, so times say nothing."""

    def note(self, model: str, what: str, *, seen_s: float, expected_s: float) -> None:
        assert seen_s >= 0
        assert expected_s > 0
        self.append((model, what))


@asynccontextmanager
async def noting_rig(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, *, answer_tokens: int = 40
) -> AsyncIterator[tuple[Rig, Noted]]:
    noted = Noted()
    async with refreshed_rig(data_dir, engine=EngineSettings(models=(MODEL,), answer_tokens=answer_tokens)) as rig:
        monkeypatch.setattr(rig.inventory, "observe", noted.note)
        yield rig, noted


LONG = chat_body("word " * 80, stream_options={"include_usage": True})


async def test_a_job_that_was_alone_is_compared_with_the_curve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with noting_rig(tmp_path, monkeypatch) as (rig, noted):
        rig.send(1, body=LONG, prompt_tokens=80)
        await rig.ended(1)
    assert noted == [(MODEL, "reading"), (MODEL, "writing")]


async def test_short_prompts_and_short_answers_say_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with noting_rig(tmp_path, monkeypatch, answer_tokens=5) as (rig, noted):
        rig.send(1, body=chat_body("hi", stream_options={"include_usage": True}), prompt_tokens=80)
        await rig.ended(1)
    assert noted == []


async def test_a_prompt_that_was_partly_in_the_cache_says_nothing_about_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with noting_rig(tmp_path, monkeypatch) as (rig, noted):
        rig.send(1, body=LONG, prompt_tokens=80, cached_tokens=30)
        await rig.ended(1)
    assert noted == [(MODEL, "writing")]


@pytest.mark.parametrize("beside", ["a job", "a stranger"])
async def test_a_job_beside_another_is_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: str
) -> None:
    async with noting_rig(tmp_path, monkeypatch) as (rig, noted):
        if beside == "a job":
            await stall(rig, 1, prompt_tokens=10)
            await until(lambda: rig.jobs.count() == 1)
        else:
            rig.inventory.foreign_requests = 1
        rig.send(2, body=LONG, prompt_tokens=80)
        await rig.ended(2)
    assert noted == []


async def test_a_job_whose_client_reads_slowly_says_nothing_about_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with noting_rig(tmp_path, monkeypatch) as (rig, noted):
        monkeypatch.setattr(job_runner, "BLOCKED_SHARE_MAX", -1.0)
        rig.send(1, body=LONG, prompt_tokens=80)
        await rig.ended(1)
    assert noted == [(MODEL, "reading")]
