"""Long bodies, are read as short ones."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from sparewatt.api.inference.chat import read_chat
from sparewatt.core.errors import BadRequest
from sparewatt.core.limits import LONG_BODY_BYTES_MIN
from sparewatt.inference.call import ModelCall
from sparewatt.protocol.openai.chat import for_node

TEXT = st.text(max_size=8) | st.sampled_from(
    [
        '"image_url"',
        '"role":"developer"',
        '{"type":"file"}',
        '\\"input_audio"',
        '"max_tokens":1',
        "developer",
        "[",
        "\\",
    ]
)
PART = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "image_url", "input_audio", "file", "odd"])}, optional={"text": TEXT}
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system", "tool", "developer", "other"])},
    optional={
        "content": TEXT | st.none() | st.lists(PART, max_size=3) | PART | st.integers(),
        "name": st.sampled_from(["a", "b"]),
        "tool_call_id": st.just("c"),
        "tool_calls": st.just([{"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"file": 1}'}}]),
        "reasoning": TEXT,
    },
)
CHAT = st.fixed_dictionaries(
    {"model": st.just("m"), "messages": st.lists(MESSAGE, min_size=1, max_size=4)},
    optional={
        "stream": st.booleans() | st.none(),
        "stream_options": st.none() | st.fixed_dictionaries({}, optional={"include_usage": st.booleans()}),
        "max_tokens": st.none() | st.integers(0, 9),
        "max_completion_tokens": st.none() | st.integers(0, 9),
        "temperature": st.just(1),
        "unknown": TEXT,
    },
)
PAD = b" " * LONG_BODY_BYTES_MIN


def told(body: bytes) -> dict[str, Any] | str:
    """What a body asks for; the body itself by what it says."""
    try:
        call: ModelCall = read_chat(body)
    except BadRequest as error:
        return error.message
    found = {name: getattr(call, name) for name in ModelCall.__struct_fields__}
    return found | {"body": json.loads(call.body)}


@given(CHAT)
def test_a_long_chat_asks_for_what_a_short_one_does(chat: dict[str, Any]) -> None:
    body = json.dumps(chat).encode()
    assert told(PAD + body) == told(body)


@given(CHAT, st.none() | st.integers(1, 9))
@example({"max_completion_tokens": 5}, None)
@example({"max_tokens": 5}, 3)
@example({"stream_options": {"include_usage": False}}, None)
def test_a_long_body_is_made_ready_for_a_node_as_a_short_one(chat: dict[str, Any], limit: int | None) -> None:
    body = json.dumps(chat).encode()
    for stream in (False, True):
        long = for_node(PAD + body, stream=stream, output_limit=limit)
        assert json.loads(long) == json.loads(for_node(body, stream=stream, output_limit=limit))
