"""The cheapest lies of a node about what it wrote and read: what the client is told, pays, and the node is paid."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from sparewatt.core.ids import AccountId, MatchId, NodeId
from sparewatt.core.money import token_cost
from sparewatt.inference.dispatch.model import AttemptRecord, BilledAnswer, DeliveryCount, Outcome
from sparewatt.inference.dispatch.reply import StreamReply, WholeReply
from sparewatt.inference.metering.service import Payer, RunningTab
from sparewatt.inference.metering.token_rates import CAUGHT_SHARE
from sparewatt.inference.prompt import PromptSize, chat_units
from sparewatt.inference.text_units import CompletionUnits
from tests.unit.inference.metering.test_service import Till, order
from tests.unit.ledger.books_suite import deposit
from tests.unit.ledger.samples import KEY, NODE, PAYER, PRICE

HONEST = tuple(AccountId(f"acc_{name}") for name in ("ann", "ben", "cyd"))
LIAR = AccountId("acc_liar")
DONE = b"data: [DONE]\n\n"
ANSWER = "Yes, the cat and the dog went to the end of the garden, and it is said that they came back to the house."
ANSWER_TOKENS = 27
PROMPT = [b'{"role":"user","content":"Did the cat come back?"}']
PROMPT_TOKENS = 12
YES_TOKENS = 2
NEIGHBOUR = NodeId("0x" + "2" * 40)
"""Another node of the same owner."""


@pytest.fixture
async def till(tmp_path: Path) -> AsyncIterator[Till]:
    till = Till(tmp_path)
    await till.books.post_transfer(deposit("d", 10**9))
    yield till
    till.journal.close()


class Answered:
    """One answer of one node, from its bytes to the books."""

    def __init__(self, till: Till, tab: RunningTab, owner: AccountId, name: str, node: NodeId = NODE) -> None:
        self.till, self.tab, self.name = till, tab, name
        self.attempts = [AttemptRecord(node, 0.0, Outcome.DONE, owner=owner, ended_ms=9.0)]
        self.attempts[0].prompt_price_nano, self.attempts[0].completion_price_nano = PRICE.prompt, PRICE.completion
        self.told: dict[str, Any] = {}

    def bill(self, seen: DeliveryCount, units: CompletionUnits) -> BilledAnswer:
        self.attempts[-1].delivered = seen
        self.tab.settle(self.attempts, units)
        return self.tab.billed(self.attempts)

    @property
    def delivered(self) -> DeliveryCount:
        assert self.attempts[0].delivered is not None
        return self.attempts[0].delivered

    @property
    def paid(self) -> int:
        return self.delivered.paid_completion_tokens or 0

    async def close(self) -> None:
        """What the client was told is what the books have, and what was charged for."""
        self.tab.close(Outcome.DONE, self.attempts)
        await self.till.ledger.flush()
        row = self.till.books.jobs[MatchId(f"match_{self.name}")]
        usage = self.told
        assert (row.prompt_tokens, row.completion_tokens) == (usage["prompt_tokens"], usage["completion_tokens"])
        assert usage["total_tokens"] == row.prompt_tokens + row.completion_tokens
        expected = token_cost(
            prompt_tokens=row.prompt_tokens,
            completion_tokens=row.completion_tokens,
            prompt_price=PRICE.prompt,
            completion_price=PRICE.completion,
        )
        assert row.cost_nano == expected == round(usage["cost"] * 1e9)


async def answered(
    till: Till, owner: AccountId, events: Iterable[bytes], *, name: str = "1", node: NodeId = NODE, **call: Any
) -> Answered:
    size = PromptSize(12, 3, chat_units(PROMPT))
    tab = await till.metering.open(Payer(PAYER, KEY), order(name, **({"size": size, "output_limit": 6_000} | call)))
    tab.start()
    found = Answered(till, tab, owner, name, node)
    reply = StreamReply(wants_usage=True, bill=found.bill, answers=1)
    passed = b"".join(reply.feed(event).data for event in (*events, DONE))
    found.told = json.loads(passed.split(b"\n\n")[-3][6:])["usage"]
    await found.close()
    return found


def chunk(delta: dict[str, Any], index: int = 0, **more: Any) -> bytes:
    return b"data: " + json.dumps({"id": "c", "choices": [{"index": index, "delta": delta}], **more}).encode() + b"\n\n"


def usage(written: int, read: int = PROMPT_TOKENS) -> bytes:
    counts = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    return b"data: " + json.dumps({"choices": [], "usage": counts}).encode() + b"\n\n"


def words(text: str = ANSWER) -> list[bytes]:
    return [chunk({"content": word + " "}) for word in text.split(" ")]


async def taught(till: Till) -> None:
    """Three honest owners have served such answers."""
    for owner in HONEST:
        for number in range(20):
            await answered(till, owner, [*words(), usage(ANSWER_TOKENS)], name=f"{owner}{number}")


LIES: dict[str, Sequence[bytes]] = {
    "an unknown field": [*words()[1:], chunk({"content": "Yes, ", "junk": "x" * 8192}), usage(4_000)],
    "an unknown field in every chunk": [chunk({"content": word + " ", "junk": "x" * 200}) for word in ANSWER.split(" ")]
    + [usage(2_000)],
    "escapes": [
        b'data: {"choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n'
        % "".join(f"\\u{ord(char):04x}" for char in ANSWER).encode(),
        usage(300),
    ],
    "a zero-width character per chunk": [*words(), *[chunk({"content": "\u200b"})] * 500, usage(527)],
    "zero-width characters and no usage": [*words(), *[chunk({"content": "\u200b"})] * 500],
    "a character per chunk": [*[chunk({"content": char}) for char in ANSWER], usage(len(ANSWER))],
    "a character per chunk and no usage": [chunk({"content": char}) for char in ANSWER],
    "spaces": [*words(), chunk({"content": " " * 8_000}), usage(1_000)],
    "newlines": [*words(), *[chunk({"content": "\n"})] * 400, usage(427)],
    "another answer": [*words(), *[chunk({"content": "more text "}, index=7)] * 100, usage(227)],
    "usage in pieces": [*words(), *[usage(ANSWER_TOKENS)] * 40],
    "usage beside text": [chunk({"content": ANSWER}, usage={"prompt_tokens": 12, "completion_tokens": 900})],
    "reasoning twice": [chunk({"reasoning": word, "reasoning_content": word}) for word in ANSWER.split(" ")]
    + [usage(54)],
    "marks on letters": [*words(), chunk({"content": "." + "\u0301" * 3_000}), usage(3_000)],
}


@pytest.mark.parametrize("lie", LIES)
async def test_a_lie_pays_at_most_a_tenth_more_and_is_told_as_it_is_billed(till: Till, lie: str) -> None:
    await taught(till)
    paid = [(await answered(till, LIAR, LIES[lie], name=str(number))).paid for number in range(10)]
    assert sum(paid) <= 10 * ANSWER_TOKENS * 1.1 + 8


@pytest.mark.parametrize("lie", ["an unknown field", "escapes", "a zero-width character per chunk", "spaces"])
async def test_a_claim_far_above_the_text_is_marked(till: Till, lie: str) -> None:
    await taught(till)
    assert (await answered(till, LIAR, LIES[lie])).delivered.is_marked
    assert not (await answered(till, LIAR, [*words(), usage(ANSWER_TOKENS)], name="2")).delivered.is_marked


@pytest.mark.parametrize("limit", [16, 6_000])
async def test_a_short_limit_does_not_hide_how_far_a_claim_is_from_the_text(till: Till, limit: int) -> None:
    """Before anything is known of the model, and beside an honest node of the same owner."""
    for number in range(20):
        await answered(till, LIAR, [*words(), usage(ANSWER_TOKENS)], name=f"h{number}", node=NEIGHBOUR)
    for number in range(6):
        lie = [chunk({"content": "Yes."}), usage(4_000)]
        found = await answered(till, LIAR, lie, name=str(number), output_limit=limit)
        assert found.delivered.is_marked
        assert found.paid <= YES_TOKENS


async def test_a_short_prompt_that_is_claimed_to_be_long_is_cut_and_marked(till: Till) -> None:
    await taught(till)
    found = await answered(till, LIAR, [*words(), usage(ANSWER_TOKENS, read=240)])
    assert found.delivered.is_marked
    assert found.delivered.paid_prompt_tokens == int(CAUGHT_SHARE * PROMPT_TOKENS)
    assert found.paid == ANSWER_TOKENS


@pytest.mark.parametrize(
    "counts", [b'{"prompt_tokens":12,"completion_tokens":1000000000}', b'{"prompt_tokens":-1}', None]
)
async def test_who_counts_nothing_that_could_be_true_is_paid_less_than_who_counts(
    till: Till, counts: bytes | None
) -> None:
    await taught(till)
    events = [*words(), b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n']
    size = PromptSize(12, 3, chat_units(PROMPT))
    tab = await till.metering.open(Payer(PAYER, KEY), order("u", size=size, output_limit=6_000))
    tab.start()
    found = Answered(till, tab, LIAR, "u")
    reply = StreamReply(wants_usage=False, answers=1)
    for event in [*events, *([b'data: {"choices":[],"usage":' + counts + b"}\n\n"] if counts else [])]:
        reply.feed(event)
    told = found.bill(reply.delivered, reply.units()).usage
    assert told.prompt_tokens == int(CAUGHT_SHARE * PROMPT_TOKENS)
    assert found.paid == len(ANSWER.split(" "))
    tab.close(Outcome.DONE, found.attempts)
    await till.ledger.flush()
    assert till.books.jobs[MatchId("match_u")].prompt_tokens == told.prompt_tokens


@pytest.mark.parametrize(("outcome", "share"), [(Outcome.FAILED, CAUGHT_SHARE), (Outcome.CANCELLED, 1.0)])
async def test_a_prompt_that_a_node_did_not_count_is_estimated_lower_where_that_is_its_fault(
    till: Till, outcome: Outcome, share: float
) -> None:
    await taught(till)
    tab = await till.metering.open(Payer(PAYER, KEY), order("u", size=PromptSize(12, 3, chat_units(PROMPT))))
    tab.start()
    found = Answered(till, tab, LIAR, "u")
    reply = StreamReply(wants_usage=False, answers=1)
    for event in words():
        reply.feed(event)
    found.attempts[-1].outcome = outcome
    assert found.bill(reply.delivered, reply.units()).usage.prompt_tokens == int(share * PROMPT_TOKENS)
    tab.close(outcome, found.attempts)


async def test_five_percent_more_on_every_answer_stay_five_percent(till: Till) -> None:
    await taught(till)
    paid = [
        (await answered(till, LIAR, [*words(ANSWER * 4), usage(round(4.2 * ANSWER_TOKENS))], name=str(number))).paid
        for number in range(40)
    ]
    assert sum(paid) <= 40 * 4 * ANSWER_TOKENS * 1.1


async def test_honest_owners_are_paid_what_they_claim(till: Till) -> None:
    await taught(till)
    assert {(row.prompt_tokens, row.completion_tokens) for row in till.books.jobs.values()} == {
        (PROMPT_TOKENS, ANSWER_TOKENS)
    }


async def test_an_answer_that_nobody_can_read_costs_nothing(till: Till) -> None:
    found = await answered(till, LIAR, [*[chunk({"content": "\u200b"})] * 99, usage(99)])
    assert (found.told["prompt_tokens"], found.told["completion_tokens"], found.told["cost"]) == (0, 0, 0.0)


async def test_the_arguments_of_a_tool_call_are_paid_and_their_padding_is_not(till: Till) -> None:
    def call(arguments: str, count: int) -> list[bytes]:
        function = {"name": "get_weather", "arguments": arguments}
        return [chunk({"tool_calls": [{"index": 0, "id": "c", "function": function}]}), usage(count)]

    honest = '{"city": "Paris", "days": 3, "unit": "celsius", "hourly": false}'
    for owner in HONEST:
        for number in range(20):
            await answered(till, owner, call(honest, 34), name=f"{owner}{number}")
    padded = honest.replace(", ", "," + " " * 400)
    paid = [(await answered(till, LIAR, call(padded, 1_200), name=str(number))).paid for number in range(10)]
    assert sum(paid) <= 10 * 34 * 1.1 + 8
    assert (await answered(till, HONEST[0], call(honest, 34), name="last")).paid == 34


async def test_a_whole_answer_is_cut_and_told_like_a_stream(till: Till) -> None:
    await taught(till)
    size = PromptSize(12, 3, chat_units(PROMPT))
    tab = await till.metering.open(Payer(PAYER, KEY), order("w", size=size, output_limit=6_000, stream=False))
    tab.start()
    found = Answered(till, tab, LIAR, "w")
    reply = WholeReply(bill=found.bill, answers=1)
    choices = [
        {"index": 0, "message": {"content": ANSWER, "junk": "x" * 8192}},
        {"index": 7, "message": {"content": "x"}},
    ]
    counts = {"prompt_tokens": 300, "completion_tokens": 4_000, "junk": 1}
    reply.feed(json.dumps({"choices": choices, "usage": counts, "junk": 2}).encode())
    told = json.loads(reply.end())
    found.told = told.pop("usage")
    await found.close()
    message = {"role": "assistant", "content": ANSWER, "refusal": None}
    assert told == {"choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}]}
    assert 0 < found.paid <= CAUGHT_SHARE * ANSWER_TOKENS


async def test_what_a_client_was_told_does_not_change_when_other_answers_come(till: Till) -> None:
    found = await answered(till, LIAR, [*words(), usage(ANSWER_TOKENS)])
    before = found.tab.billed(found.attempts)
    await taught(till)
    found.tab.settle(found.attempts, CompletionUnits())
    assert found.tab.billed(found.attempts) == before
