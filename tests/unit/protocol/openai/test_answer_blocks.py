from __future__ import annotations

import pytest

from sparewatt.core.errors import JobFailed
from sparewatt.protocol.openai.answer_blocks import AnswerAssembler, BlockEvent
from sparewatt.protocol.responses.chat_chunks import StreamChunk, read_chunk
from tests.unit.protocol.responses.builders import FINISH, call_delta, chunk, usage_chunk


def an_answer(*, with_reasoning: bool = True) -> AnswerAssembler:
    return AnswerAssembler(with_reasoning=with_reasoning, call_id=lambda given: given or "made")


def fed(answer: AnswerAssembler, *chunks: StreamChunk) -> list[BlockEvent]:
    events = [event for one in chunks for event in answer.feed(one)]
    return [*events, *answer.close()]


def shapes(events: list[BlockEvent]) -> list[tuple[str, int]]:
    return [(event.kind, event.position) for event in events]


def test_a_block_ends_before_the_next_begins() -> None:
    answer = an_answer()
    events = fed(answer, chunk({"reasoning": "h"}), chunk({"content": "a"}), chunk(call_delta("{}", name="f")), FINISH)
    assert shapes(events) == [(kind, i) for i in range(3) for kind in ("start", "write", "stop")]
    assert [block.kind for block in answer.blocks] == ["reasoning", "text", "call"]


def test_a_call_that_waits_begins_when_the_one_before_it_is_complete() -> None:
    answer = an_answer()
    first, second = call_delta('{"a":', name="f", call_id="1"), call_delta('{"b": 2}', index=1, name="g", call_id="2")
    assert shapes(list(answer.feed(chunk(first)))) == [("start", 0), ("write", 0)]
    assert list(answer.feed(chunk(second))) == []
    events = list(answer.feed(chunk(call_delta("1}"))))
    assert shapes(events) == [("write", 0), ("stop", 0), ("start", 1), ("write", 1)]
    assert events[-1].text == '{"b": 2}'


def test_text_behind_calls_that_wait_comes_after_them() -> None:
    answer = an_answer()
    fed(
        answer,
        chunk(call_delta('{"a":', name="f", call_id="1")),
        chunk(call_delta("{}", index=1, name="g", call_id="2")),
        chunk({"content": "so"}),
    )
    assert [(block.kind, block.text) for block in answer.blocks] == [("call", '{"a":'), ("call", "{}"), ("text", "so")]


def test_the_outcome_is_kept() -> None:
    answer = an_answer()
    fed(answer, chunk({"content": "x"}, finish="stop", stop_reason="END"), FINISH, usage_chunk(prompt_tokens=3))
    assert (answer.finish_reason, answer.stopped_by, answer.usage) == ("stop", "END", {"prompt_tokens": 3})
    assert answer.failure is None


def test_the_first_error_of_a_stream_is_kept() -> None:
    answer = an_answer()
    for text in ("first", "second"):
        broken = read_chunk(b'{"error": {"message": "%b"}}' % text.encode())
        assert broken is not None
        fed(answer, broken)
    assert answer.failure is not None
    assert answer.failure.message == "first"


def test_reasoning_can_be_left_out() -> None:
    answer = an_answer(with_reasoning=False)
    assert fed(answer, chunk({"reasoning": "h"}), FINISH) == []


@pytest.mark.parametrize(("finish", "is_cut"), [("length", True), ("tool_calls", False), ("stop", False)])
def test_only_a_call_that_was_cut_at_the_limit_is_left_out(finish: str, is_cut: bool) -> None:  # noqa: FBT001 (a case)
    answer = an_answer()
    fed(answer, chunk({"content": "a"}), chunk(call_delta('{"a', name="f"), finish=finish))
    if is_cut:
        assert [block.kind for block in answer.complete_blocks()] == ["text"]
    else:
        with pytest.raises(JobFailed):
            answer.complete_blocks()


def test_a_text_completion_is_text() -> None:
    answer, read = an_answer(), read_chunk(b'{"choices": [{"text": "once"}]}')
    assert read is not None
    fed(answer, read)
    assert answer.blocks[0].text == "once"
