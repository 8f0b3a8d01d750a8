"""Money on a real network: what replies say, the books say; nobody pays for what did not come, or more than they have.

One gateway and three nodes for all of it. The last test kills them; `make soak` does that for minutes.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import secrets
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sparewatt.core.money import NANO_PER_USD, parse_usd
from sparewatt.node.jobs.receipt_issuer import FILE as RECEIPTS_FILE
from sparewatt.node.jobs.receipt_issuer import ReceiptPair
from sparewatt.protocol.link.receipts import Receipt, ReceiptProof, countersign_digest
from sparewatt.protocol.signing import recover_address
from tests.integration.asking import Answer, Reply, ask, chat_body, connection_to, stream_chat
from tests.integration.bookkeeping import balance_nano, booked, pay_in, rows
from tests.integration.killing import Arena, arena, ask_and_kill, judge
from tests.integration.networks import Network, wait_until
from tests.integration.people import Person, sign_up
from tests.integration.test_secrets import dump

CHATS = "/v1/chat/completions"
PRICE_USD = "100"
TOKEN_NANO = int(PRICE_USD) * NANO_PER_USD // 1_000_000
"""What a token may cost at most where a request allows PRICE_USD for a million."""
REVOKED_WITHIN_S = 5.0
RATE_HEADERS = {f"x-ratelimit-{what}-{of}" for what in ("limit", "remaining", "reset") for of in ("requests", "tokens")}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    with arena(tmp_path_factory.mktemp("books")) as place:
        yield place


@pytest.fixture(scope="module")
def network(place: Arena) -> Network:
    return place.mortal


@pytest.fixture
def ann(network: Network) -> Person:
    """Somebody without a cent."""
    return sign_up(network, f"ann-{secrets.token_hex(6)}@example.org")


def chat(network: Network, prompt: str = "hello", *, key: str | None = None, **more: object) -> Reply:
    return ask(network, "POST", CHATS, chat_body(network, prompt, **more), key=key)


def new_key(network: Network, **terms: object) -> dict[str, Any]:
    made: dict[str, Any] = ask(network, "POST", "/v1/keys", {"name": "test", **terms}).json()
    return made


# what an answer costs


def test_a_whole_answer_says_in_header_and_usage_what_the_books_say(network: Network) -> None:
    reply = chat(network, max_tokens=7)
    job = booked(network, reply.headers["x-sparewatt-match-id"])
    assert job["state"] == "done"
    assert job["completion_tokens"] == reply.json()["usage"]["completion_tokens"] == 7
    assert job["cost_nano"] > 0
    assert parse_usd(reply.headers["x-sparewatt-cost"]) == job["cost_nano"]
    assert round(reply.json()["usage"]["cost"] * NANO_PER_USD) == job["cost_nano"]


def test_a_streamed_answer_ends_in_what_the_books_say(network: Network) -> None:
    answer = stream_chat(network, "hello", max_tokens=7, stream_options={"include_usage": True})
    job = booked(network, answer.headers["x-sparewatt-match-id"])
    assert answer.usage is not None
    assert round(answer.usage["cost"] * NANO_PER_USD) == job["cost_nano"] > 0


def test_what_a_payer_loses_is_what_the_answers_cost(network: Network, ann: Person) -> None:
    pay_in(network, ann.account_id, NANO_PER_USD, cause=f"test:{ann.account_id}")
    replies = [chat(network, f"{number} hello", key=ann.key, max_tokens=5) for number in range(3)]
    costs = [booked(network, reply.headers["x-sparewatt-match-id"])["cost_nano"] for reply in replies]
    assert balance_nano(network, ann.account_id) == NANO_PER_USD - sum(costs)


# too little money


def test_without_money_it_is_402_and_nothing_is_held_or_booked(network: Network, ann: Person) -> None:
    reply = chat(network, key=ann.key, max_tokens=5)
    assert (reply.status, reply.error()["code"]) == (402, "insufficient_credits")
    assert "retry-after" not in reply.headers
    assert rows(network, "SELECT 1 FROM jobs WHERE account_id = $1", ann.account_id) == []
    assert rows(network, "SELECT 1 FROM slices WHERE account = $1 AND nano > 0", f"credits:{ann.account_id}") == []


def test_an_answer_that_is_too_dear_is_402_and_a_shorter_one_goes_through(network: Network, ann: Person) -> None:
    pay_in(network, ann.account_id, 150 * TOKEN_NANO, cause=f"test:{ann.account_id}")
    cap = {"max_price": PRICE_USD}
    for _ in range(2):
        assert chat(network, key=ann.key, max_tokens=200, provider=cap).status == 402
    assert chat(network, key=ann.key, max_tokens=20, provider=cap).status == 200


def test_an_answer_without_a_limit_ends_where_the_credits_do_and_says_so(network: Network, ann: Person) -> None:
    pay_in(network, ann.account_id, 90 * TOKEN_NANO, cause=f"test:{ann.account_id}")
    reply = chat(network, key=ann.key, provider={"max_price": PRICE_USD})
    limit, _, why = reply.headers["x-sparewatt-output-limit"].partition("; ")
    assert why == "reason=credits"
    assert reply.json()["choices"][0]["finish_reason"] == "length"
    assert reply.json()["usage"]["completion_tokens"] == int(limit) < 40


def test_with_credits_enough_the_limit_is_the_usual_one_or_the_client_s_own(network: Network) -> None:
    reply = chat(network)
    assert reply.headers["x-sparewatt-output-limit"] == "4096; reason=default"
    assert reply.json()["choices"][0]["finish_reason"] == "stop"
    assert "x-sparewatt-output-limit" not in chat(network, max_tokens=3).headers


def test_a_generation_tells_why_the_answer_ended(network: Network) -> None:
    whole, streamed = chat(network, max_tokens=3), stream_chat(network, "hello", max_tokens=3)
    for answer in (whole, streamed, chat(network)):
        match_id = answer.headers["x-sparewatt-match-id"]
        job = booked(network, match_id)
        told = ask(network, "GET", f"/v1/generation?id={match_id}").json()["data"]
        assert told["finish_reason"] == job["finish_reason"]
        assert told["finish_reason"] == ("length" if told["tokens_completion"] == 3 else "stop")


# answers that do not come whole


@contextlib.contextmanager
def all_engines_fail(place: Arena, **fault: object) -> Iterator[None]:
    """Every request from now on, until the end of the block."""
    addresses = [f"{url}/engine/faults" for url in place.engines.values()]
    data = json.dumps({"count": None, **fault}).encode()
    try:
        for url in addresses:
            urllib.request.urlopen(urllib.request.Request(url, data=data), timeout=10).close()  # noqa: S310 (loopback)
        yield
    finally:
        for url in addresses:
            request = urllib.request.Request(url, method="DELETE")  # noqa: S310 (loopback)
            urllib.request.urlopen(request, timeout=10).close()  # noqa: S310


def tokens_of(answer: Answer) -> int:
    return sum(bool(choice["delta"].get("content")) for chunk in answer.chunks for choice in chunk.get("choices", ()))


def test_a_stream_that_breaks_costs_what_was_delivered(place: Arena, network: Network) -> None:
    with all_engines_fail(place, kind="drop_after_tokens", after_tokens=5):
        answer = stream_chat(network, "hello", max_tokens=30, provider={"allow_resume": False})
    assert answer.error is not None
    job = booked(network, answer.headers["x-sparewatt-match-id"])
    assert (job["state"], job["completion_tokens"]) == ("failed", tokens_of(answer))
    assert job["completion_tokens"] == 5
    assert job["cost_nano"] > 0


def test_a_stream_that_breaks_on_every_node_costs_what_all_of_them_delivered(place: Arena, network: Network) -> None:
    with all_engines_fail(place, kind="drop_after_tokens", after_tokens=5):
        answer = stream_chat(network, "hello", max_tokens=30)
    assert answer.error is not None
    job = booked(network, answer.headers["x-sparewatt-match-id"])
    assert (job["state"], job["completion_tokens"]) == ("failed", tokens_of(answer))
    assert job["completion_tokens"] > 5


def test_an_answer_that_never_began_costs_nothing(place: Arena, network: Network) -> None:
    with all_engines_fail(place, kind="drop_before_head"):
        reply = chat(network, max_tokens=30)
    assert reply.status >= 500
    match_id = reply.headers["x-sparewatt-match-id"]
    job = booked(network, match_id)
    assert (job["state"], job["cost_nano"], job["completion_tokens"]) == ("failed", 0, 0)
    assert rows(network, "SELECT 1 FROM postings WHERE cause = $1", f"job:{match_id}") == []


def test_a_client_that_leaves_pays_for_what_had_come(network: Network) -> None:
    body = json.dumps(chat_body(network, "hello", stream=True, max_tokens=100)).encode()
    with connection_to(network) as connection:
        connection.request("POST", CHATS, body=body, headers={"authorization": f"Bearer {network.api_key}"})
        reply = connection.getresponse()
        seen = _read_tokens(reply, 3)
    job = booked(network, reply.headers["x-sparewatt-match-id"])
    assert job["state"] == "cancelled"
    assert seen <= job["completion_tokens"] < 100
    assert job["cost_nano"] > 0


def _read_tokens(reply: http.client.HTTPResponse, count: int) -> int:
    seen = 0
    while seen < count:
        seen += b'"content":"' in reply.readline().replace(b'"content":""', b"")
    return seen


# keys


def test_a_key_whose_budget_is_too_small_is_403_until_it_gets_more(network: Network) -> None:
    made = new_key(network, budget={"nano": 1, "period": "day"})
    refused = chat(network, key=made["key"], max_tokens=3)
    assert (refused.status, refused.error()["code"]) == (403, "key_budget_exceeded")
    more = {"budget": {"usd": 1, "period": "day"}}
    assert ask(network, "PATCH", f"/v1/keys/{made['id']}", more).status == 200
    assert chat(network, key=made["key"], max_tokens=3).status == 200


def test_every_reply_to_a_key_says_what_is_left_of_its_limits(network: Network, ann: Person) -> None:
    replies = {
        200: chat(network, max_tokens=3),
        400: ask(network, "POST", CHATS, raw=b"{"),
        402: chat(network, key=ann.key),
        404: chat(replace(network, model="nobody-has-this")),
    }
    assert [reply.status for reply in replies.values()] == list(replies)
    assert {status for status, reply in replies.items() if not set(reply.headers) >= RATE_HEADERS} == set()


def test_a_key_that_asks_too_often_is_told_when_to_come_back(network: Network) -> None:
    key = new_key(network, requests_per_min=1)["key"]
    assert chat(network, key=key, max_tokens=3).status == 200
    refused = chat(network, key=key, max_tokens=3)
    assert (refused.status, refused.error()["code"]) == (429, "rate_limit_exceeded")
    assert 1 <= int(refused.headers["retry-after"]) <= 120
    assert set(refused.headers) >= RATE_HEADERS
    assert refused.headers["x-ratelimit-remaining-requests"] == "0"


def test_a_key_revoked_at_one_gateway_is_refused_by_the_other_within_seconds(place: Arena, network: Network) -> None:
    made = new_key(place.network)
    wait_until(lambda: chat(network, key=made["key"], max_tokens=1).status == 200, "the key does not work")
    assert ask(place.network, "DELETE", f"/v1/keys/{made['id']}").status == 200
    wait_until(
        lambda: chat(network, key=made["key"], max_tokens=1).status == 401,
        "the key still works",
        ceiling_s=REVOKED_WITHIN_S,
    )


# receipts


def kept_pairs(place: Arena) -> list[ReceiptPair]:
    """What the nodes have kept, all together."""
    files = [place.folder / name / RECEIPTS_FILE for name in place.nodes]
    lines = [line for file in files if file.exists() for line in file.read_bytes().splitlines()]
    return [msgspec.json.decode(line, type=ReceiptPair) for line in lines]


def test_a_node_keeps_its_receipt_and_the_gateway_s_word_for_it(place: Arena, network: Network) -> None:
    reply = chat(network, max_tokens=9)
    match_id, node_id = reply.headers["x-sparewatt-match-id"], reply.headers["x-sparewatt-node"]

    def pairs() -> list[tuple[Receipt, ReceiptPair]]:
        found = [(receipt, pair) for pair in kept_pairs(place) for receipt in pair.receipts]
        return [(receipt, pair) for receipt, pair in found if receipt.job == match_id]

    wait_until(lambda: bool(pairs()), "no receipt was countersigned")
    [(receipt, pair)] = pairs()
    assert (receipt.node, receipt.completion_tokens) == (node_id, 9)
    assert any(ReceiptProof(receipt, seal).is_valid for seal in pair.sheets)
    word = pair.countersigned
    assert receipt.digest().hex() in word.digests
    said = countersign_digest(node_id, [bytes.fromhex(digest) for digest in word.digests])
    assert recover_address(said, bytes.fromhex(word.signature)) == word.gateway
    [row] = rows(network, "SELECT * FROM receipts WHERE job_id = $1", match_id)
    assert (row["node_id"], row["completion_tokens"], row["disputed"]) == (node_id, 9, False)


# secrets


def test_no_prompt_key_or_password_is_left_anywhere(place: Arena, network: Network) -> None:
    marked = {what: f"marker-{secrets.token_hex(8)}-{what}" for what in ("prompt", "password")}
    eve = sign_up(network, f"eve-{secrets.token_hex(6)}@example.org", marked["password"])
    marked["key"] = eve.key
    pay_in(network, eve.account_id, NANO_PER_USD, cause=f"test:{eve.account_id}")
    served = chat(network, marked["prompt"], key=eve.key, max_tokens=3)
    booked(network, served.headers["x-sparewatt-match-id"])
    errors = [
        chat(network, marked["prompt"], key=eve.key, max_tokens=10**7, provider={"max_price": PRICE_USD}),
        chat(network, marked["prompt"], key=eve.key, max_tokens=-1),
        chat(network, marked["prompt"], key=eve.key + "0"),
        ask(network, "POST", CHATS, raw=marked["prompt"].encode(), key=eve.key),
    ]
    with all_engines_fail(place, kind="error_event"):
        errors.append(chat(network, marked["prompt"], key=eve.key, max_tokens=3))
    assert [reply.status for reply in errors[:4]] == [402, 400, 401, 400]
    assert errors[4].status >= 500
    places = {path: path.read_bytes() for path in written_files(place)}
    places[Path("a dump")] = asyncio.run(dump(place.network.data)).encode()
    places[Path("errors")] = b"\n".join(reply.body + repr(reply.headers).encode() for reply in errors)
    assert any(path.suffix == ".journal" for path in places)
    assert [
        (what, path) for what, mark in marked.items() for path, text in places.items() if mark.encode() in text
    ] == []


def written_files(place: Arena) -> list[Path]:
    """Logs, journals, and what nodes keep; not the database's own files, which are read as a dump."""
    return [
        path
        for path in place.folder.rglob("*")
        if path.is_file() and "postgres" not in path.relative_to(place.folder).parts
    ]


# deaths


def test_books_are_right_after_two_kills_of_the_gateway_and_one_of_a_node(place: Arena) -> None:
    witnesses = asyncio.run(ask_and_kill(place, rate=20, seconds=7, kills=2, seed=1))
    verdict = judge(place, witnesses)
    place.start_gateway()
    assert (place.gateways_killed, place.nodes_killed) == (2, 1)
    assert sum(witness.complete for witness in witnesses) >= 20
    verdict.check()
