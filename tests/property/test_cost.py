"""Token counts and a cost that are written into a reply say the same, whatever the server said before."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sparewatt.protocol.openai.chat import Usage, with_usage

FEW = st.integers(0, 3)
COUNTS = st.fixed_dictionaries(
    {"prompt_tokens": FEW},
    optional={
        "completion_tokens": FEW,
        "total_tokens": FEW,
        "cost": st.floats(0, 1),
        "prompt_tokens_details": st.dictionaries(st.text(max_size=3), FEW, max_size=2) | st.just("x"),
        "details": st.dictionaries(st.text(max_size=3), FEW, max_size=2),
    },
)
USAGE: st.SearchStrategy[Any] = st.none() | st.just({}) | COUNTS
TEXT = st.text(max_size=10) | st.sampled_from(['"usage":{"prompt_tokens":1}', "{}", "null", '{"prompt_tokens":1}'])


@given(
    st.fixed_dictionaries(
        {"choices": st.lists(TEXT, max_size=2)},
        optional={"usage": USAGE, "other": st.fixed_dictionaries({"usage": USAGE}), "usage2": USAGE},
    ),
    st.randoms(use_true_random=False),
    st.sampled_from([None, 1]),
    st.none() | st.floats(0, 1e3),
    st.builds(Usage, FEW, FEW),
)
def test_what_a_client_is_told_are_our_counts_and_the_rest_stays(
    reply: dict[str, object], order: Random, indent: int | None, cost_usd: float | None, counts: Usage
) -> None:
    fields = list(reply.items())
    order.shuffle(fields)
    body = json.dumps(dict(fields), indent=indent, ensure_ascii=False).encode()
    told = json.loads(with_usage(body, counts, cost_usd=cost_usd))
    usage = told.pop("usage")
    assert usage.pop("prompt_tokens") == counts.prompt_tokens
    assert usage.pop("completion_tokens", 0) == counts.completion_tokens
    assert usage.pop("total_tokens", None) in (None, counts.prompt_tokens + counts.completion_tokens)
    assert usage.pop("cost", None) == cost_usd
    for count in usage.pop("prompt_tokens_details", {}).values():
        assert count <= counts.prompt_tokens
    assert usage == {}
    reply.pop("usage", None)
    assert told == reply
