"""The text of an answer, and what of a request decides whether it can be run again for a comparison."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from sparewatt.inference.call import ModelCall
from sparewatt.inference.dispatch.model import Job
from sparewatt.inference.dispatch.reply import EventSplitter, event_data
from sparewatt.protocol.openai.stream_accumulator import BrokenStream, StreamAccumulator
from sparewatt.trust.checks.model import CheckResult
from sparewatt.trust.checks.schema_check import check_calls, check_json

_CHAT = "/v1/chat/completions"


class _Sampling(msgspec.Struct, frozen=True):
    """The fields of a request that decide whether its answer is always the same."""

    temperature: float | None = None
    n: int | None = None
    seed: int | None = None


class _Function(msgspec.Struct, frozen=True):
    name: str = ""
    arguments: str = ""


class _Call(msgspec.Struct, frozen=True):
    function: _Function = _Function()


class _Message(msgspec.Struct, frozen=True):
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct, frozen=True):
    message: _Message | None = None
    text: str | None = None
    finish_reason: str | None = None


class _Completion(msgspec.Struct, frozen=True):
    choices: list[_Choice] = []


class _Format(msgspec.Struct, frozen=True):
    class Schema(msgspec.Struct, frozen=True):
        schema: Any = True

    type: str = ""
    json_schema: Schema | None = None


class _Tool(msgspec.Struct, frozen=True):
    function: _Function = _Function()


class _Form(msgspec.Struct, frozen=True):
    """What a request asks of the form of its answer."""

    response_format: _Format | None = None
    tools: list[_Tool] | None = None


class ReadAnswer(NamedTuple):
    text: str
    calls: tuple[tuple[str, str], ...]
    """Tool calls: name and arguments."""
    finish_reason: str | None


def is_repeatable(call: ModelCall, body: bytes) -> bool:
    """Whether another node must give the same answer: one text, at temperature 0."""
    if call.answers != 1 or not call.is_text or "tools" in call.needs:
        return False
    try:
        sampling = msgspec.json.decode(body, type=_Sampling)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return sampling.temperature == 0 and sampling.n in {None, 1}


def read_body(body: bytes) -> ReadAnswer | None:
    """The first choice of a whole reply; None if there is none."""
    try:
        choices = msgspec.json.decode(body, type=_Completion).choices
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not choices:
        return None
    choice = choices[0]
    message = choice.message or _Message(choice.text)
    calls = tuple((call.function.name, call.function.arguments) for call in message.tool_calls or ())
    text = (message.reasoning_content or "") + (message.content or "")
    return ReadAnswer(text, calls, choice.finish_reason)


def read_stream(data: bytes) -> ReadAnswer | None:
    """The same of a streamed reply."""
    accumulator = StreamAccumulator()
    try:
        for event in EventSplitter().feed(data):
            content = event_data(event)
            if content is not None:
                accumulator.add(content)
        return read_body(accumulator.body())
    except BrokenStream:
        return None


def check_form(job: Job, answer: ReadAnswer) -> CheckResult:
    """Whether an answer has the form that its request asked for. One that was cut off is not judged."""
    if answer.finish_reason == "length" or job.call.path != _CHAT:
        return CheckResult.UNDECIDED
    try:
        form = msgspec.json.decode(job.body, type=_Form)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return CheckResult.UNDECIDED
    if answer.calls:
        return check_calls(answer.calls, {tool.function.name for tool in form.tools or ()})
    wanted = form.response_format
    if wanted is None or wanted.type != "json_schema" or wanted.json_schema is None:
        return CheckResult.UNDECIDED
    return check_json(answer.text, wanted.json_schema.schema)
