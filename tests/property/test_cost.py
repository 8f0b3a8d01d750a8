"""A cost that is written into a reply where it lies says the same as one for which the reply is put together anew."""

from __future__ import annotations

import json
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from sparewatt.protocol.openai.chat import with_cost, with_usage

COUNTS = st.fixed_dictionaries(
    {"prompt_tokens": st.integers(0, 9)},
    optional={
        "completion_tokens": st.integers(0, 9),
        "cost": st.floats(0, 1),
        "details": st.dictionaries(st.text(max_size=3), st.integers(0, 9), max_size=2),
    },
)
USAGE: st.SearchStrategy[dict[str, object] | None] = st.none() | st.just({}) | COUNTS
TEXT = st.text(max_size=10) | st.sampled_from(['"usage":{"prompt_tokens":1}', "{}", "null", '{"prompt_tokens":1}'])


@given(
    st.fixed_dictionaries(
        {"choices": st.lists(TEXT, max_size=2)},
        optional={"usage": USAGE, "other": st.fixed_dictionaries({"usage": USAGE}), "usage2": USAGE},
    ),
    st.randoms(use_true_random=False),
    st.sampled_from([None, 1]),
    st.floats(0, 1e3),
)
def test_a_cost_beside_the_counts_is_the_same_either_way(
    reply: dict[str, object], order: Random, indent: int | None, cost_usd: float
) -> None:
    fields = list(reply.items())
    order.shuffle(fields)
    body = json.dumps(dict(fields), indent=indent, ensure_ascii=False).encode()
    quick, thorough = json.loads(with_cost(body, cost_usd)), json.loads(with_usage(body, None, cost_usd=cost_usd))
    assert quick == thorough
    assert quick["usage"]["cost"] == cost_usd
