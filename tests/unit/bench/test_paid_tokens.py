"""The replay of answers: honest owners get their counts, a liar does not, and the report says so."""

from __future__ import annotations

import json
import random
from dataclasses import asdict
from pathlib import Path

import pytest
from bench.paid_tokens import QUANTIZATIONS, TOPICS, Answer, read_answers, replay, report, requests_of

WORDS = ("the", "river", "and", "a", "stone", "of", "mountains", "is", "quickly", "to", "seven")


def an_answer(number: int) -> Answer:
    """Of a server that takes a token for each word, and one to end."""
    rng = random.Random(number)  # noqa: S311 (repeatable)
    pieces = [rng.choice(WORDS) + " " for _ in range(rng.randint(5, 40))]
    messages = [{"role": "user", "content": "Tell me about the sea."}]
    kind = list(TOPICS)[number // len(QUANTIZATIONS) % 3]
    return Answer(QUANTIZATIONS[number % len(QUANTIZATIONS)], kind, messages, pieces, "stop", 30, len(pieces) + 1)


ANSWERS = [an_answer(number) for number in range(400)]


@pytest.mark.parametrize("one_owner", [False, True])
def test_honest_owners_are_paid_their_counts(one_owner: bool) -> None:  # noqa: FBT001
    found = replay(ANSWERS, one_owner=one_owner)
    for side in (found.prompts, found.completions):
        total = found.sum(side)
        assert total.answers == 400
        assert total.ratio == pytest.approx(1.0, abs=0.01)
        assert total.marked == 0


def test_a_liar_is_paid_like_the_others() -> None:
    found = replay(ANSWERS, liar="Q8_0", lie=lambda answer: answer.completion_tokens * 3)
    assert found.sum(found.completions, "Q8_0").ratio <= 1.1
    assert found.sum(found.completions, "Q8_0").marked > 50
    assert found.sum(found.completions, "F16").marked == 0


def test_a_tool_call_is_shown_as_servers_show_it() -> None:
    call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo", "days": 3}}\n</tool_call>'
    answer = Answer("F16", "tool call", [{"role": "user", "content": "x"}], [call], "stop", 30, 34)
    found = replay([answer] * 30)
    assert found.sum(found.completions, "tool call").ratio == 1.0


def test_the_report_has_a_row_for_every_owner_and_every_lie(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text("".join(json.dumps(asdict(answer)) + "\n" for answer in ANSWERS[:80]))
    text = report(read_answers(path))
    assert all(f"answers, {name}" in text for name in QUANTIZATIONS)
    assert "4,000 tokens" in text


@pytest.mark.parametrize("kind", TOPICS)
def test_the_same_seed_asks_the_same(kind: str) -> None:
    one, other = (requests_of(kind, random.Random(5)) for _ in range(2))  # noqa: S311
    assert one == other
    assert one["stream_options"] == {"include_usage": True}
