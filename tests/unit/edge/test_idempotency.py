"""Idempotency keys: what is kept, for whom, how long, and what is not."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from sparewatt.core.errors import IdempotencyConflict, IdempotencyMismatch, InvalidField, RateLimited
from sparewatt.edge.idempotency import (
    IDEMPOTENT_ANSWER_BYTES_MAX,
    IDEMPOTENT_ANSWERS_BYTES_MAX,
    IDEMPOTENT_ANSWERS_MAX,
    IDEMPOTENT_ANSWERS_PER_KEY_MAX,
    IDEMPOTENT_S,
    CachedAnswer,
    Idempotency,
    IdempotencyCache,
    IdempotencyId,
    ProducedAnswer,
    Repetition,
    cacheable,
    key_of,
)
from sparewatt.testing.clocks import ManualClock

ID: IdempotencyId = ("key_ann", "first")
DIGEST = b"the request"


class RepeatedRequest:
    """Counts how often an answer was really made, and how often it was asked for again."""

    def __init__(self) -> None:
        self.cache = IdempotencyCache()
        self.clock = ManualClock()
        self._idempotency = Idempotency(cache=self.cache, secret=b"k", clock=self.clock)
        self.made = self.repeats = 0
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.reply: web.StreamResponse | Exception = web.Response(body=b"hello", headers={"x-sparewatt-cost": "1"})

    async def ask(self, id_: IdempotencyId = ID, digest: bytes = DIGEST) -> web.StreamResponse:
        def repeat() -> None:
            self.repeats += 1

        repetition = Repetition(id_, digest, on_repeat=repeat)
        found = await self._idempotency.once(repetition, self._make, outcome=outcome_of)
        if isinstance(found, CachedAnswer):
            return web.Response(body=found.body, headers=found.replay_headers())
        return found

    async def _make(self) -> web.StreamResponse:
        self.made += 1
        await self.may_go_on.wait()
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply


def outcome_of(reply: web.StreamResponse) -> ProducedAnswer:
    is_answer = reply.status == 200
    if isinstance(reply, web.Response) and isinstance(reply.body, bytes):
        return ProducedAnswer(is_answer, cacheable(reply.body, reply.headers))
    return ProducedAnswer(is_answer)


def body_of(reply: web.StreamResponse) -> object:
    assert isinstance(reply, web.Response)
    return reply.body


async def test_the_same_request_again_gets_the_same_answer_and_is_made_once() -> None:
    repeated = RepeatedRequest()
    first, again = await repeated.ask(), await repeated.ask()
    assert repeated.made == 1
    assert repeated.repeats == 1
    assert body_of(first) == body_of(again) == b"hello"
    assert again.headers["x-sparewatt-cost"] == "1"
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"


async def test_another_request_under_the_same_name_is_refused() -> None:
    repeated = RepeatedRequest()
    await repeated.ask()
    with pytest.raises(IdempotencyMismatch):
        await repeated.ask(digest=b"another")
    assert repeated.made == 1


async def test_names_of_different_keys_have_nothing_to_do_with_each_other() -> None:
    repeated = RepeatedRequest()
    await repeated.ask(("key_ann", "x"))
    await repeated.ask(("key_bob", "x"), b"another")
    assert repeated.made == 2


async def test_one_that_still_runs_is_waited_for() -> None:
    repeated = RepeatedRequest()
    repeated.may_go_on.clear()
    asked = [asyncio.ensure_future(repeated.ask()) for _ in range(3)]
    await asyncio.sleep(0)
    repeated.may_go_on.set()
    assert [body_of(reply) for reply in await asyncio.gather(*asked)] == [b"hello"] * 3
    assert repeated.made == 1


async def test_a_waiting_repetition_takes_over_when_the_first_request_is_cancelled() -> None:
    repeated = RepeatedRequest()
    repeated.may_go_on.clear()
    first, second = asyncio.ensure_future(repeated.ask()), asyncio.ensure_future(repeated.ask())
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    repeated.may_go_on.set()
    assert body_of(await second) == b"hello"
    assert repeated.made == 2


@pytest.mark.parametrize("reply", [web.Response(status=503), InvalidField("no")], ids=["an error reply", "raised"])
async def test_what_failed_may_be_tried_again(reply: web.Response | Exception) -> None:
    repeated = RepeatedRequest()
    repeated.reply = reply
    for _ in range(2):
        if isinstance(reply, Exception):
            with pytest.raises(InvalidField):
                await repeated.ask()
        else:
            await repeated.ask()
    assert repeated.made == 2
    assert len(repeated.cache) == 0


@pytest.mark.parametrize(
    "reply", [web.StreamResponse(), web.Response(body=bytes(IDEMPOTENT_ANSWER_BYTES_MAX + 1))], ids=["streamed", "long"]
)
async def test_an_answer_that_is_not_cached_is_not_produced_twice(reply: web.StreamResponse) -> None:
    repeated = RepeatedRequest()
    repeated.reply = reply
    await repeated.ask()
    with pytest.raises(IdempotencyConflict):
        await repeated.ask()
    assert repeated.made == 1


async def test_an_answer_is_forgotten_in_time() -> None:
    repeated = RepeatedRequest()
    await repeated.ask()
    repeated.clock.advance(IDEMPOTENT_S + 1)
    await repeated.ask()
    assert repeated.made == 2


async def test_what_still_runs_is_not_forgotten() -> None:
    repeated = RepeatedRequest()
    repeated.may_go_on.clear()
    first = asyncio.ensure_future(repeated.ask())
    await asyncio.sleep(0)
    repeated.clock.advance(IDEMPOTENT_S + 1)
    second = asyncio.ensure_future(repeated.ask())
    await asyncio.sleep(0)
    repeated.may_go_on.set()
    await asyncio.gather(first, second)
    assert repeated.made == 1


async def test_a_running_request_is_not_evicted_and_its_repetitions_are_answered() -> None:
    repeated = RepeatedRequest()
    repeated.may_go_on.clear()
    asked = [asyncio.ensure_future(repeated.ask(("key_ann", str(n)))) for n in range(IDEMPOTENT_ANSWERS_PER_KEY_MAX)]
    await asyncio.sleep(0)
    with pytest.raises(RateLimited) as refused:
        await repeated.ask(("key_ann", "one too many"))
    assert (refused.value.status, refused.value.code) == (429, "rate_limit_exceeded")
    again = asyncio.ensure_future(repeated.ask(("key_ann", "0")))
    await asyncio.sleep(0)
    assert not again.done()
    assert (repeated.made, repeated.repeats) == (IDEMPOTENT_ANSWERS_PER_KEY_MAX, 1)
    repeated.may_go_on.set()
    replies = await asyncio.gather(*asked, again)
    assert [body_of(reply) for reply in replies] == [b"hello"] * (IDEMPOTENT_ANSWERS_PER_KEY_MAX + 1)
    assert repeated.made == IDEMPOTENT_ANSWERS_PER_KEY_MAX
    assert body_of(await repeated.ask(("key_ann", "one too many"))) == b"hello", "those that are over make room"


def test_of_all_keys_together_those_that_run_make_no_room_either() -> None:
    cache = IdempotencyCache()
    for number in range(IDEMPOTENT_ANSWERS_MAX):
        cache.begin((f"key_{number % 1000}", f"name-{number}"), DIGEST, now_s=0)
    with pytest.raises(RateLimited):
        cache.begin(("key_ann", "one too many"), DIGEST, now_s=0)
    _, is_new = cache.begin(("key_0", "name-0"), DIGEST, now_s=0)
    assert not is_new


def test_the_oldest_that_is_over_makes_room_though_an_older_one_runs() -> None:
    cache = IdempotencyCache()
    for number in range(IDEMPOTENT_ANSWERS_PER_KEY_MAX):
        id_ = ("key_ann", str(number))
        entry, _ = cache.begin(id_, DIGEST, now_s=0)
        if number:
            cache.end(id_, entry, CachedAnswer(b"x", {}), keep=True)
    cache.begin(("key_ann", "new"), DIGEST, now_s=0)
    found = [cache.begin(("key_ann", name), DIGEST, now_s=0)[1] for name in ("0", "2", "new", "1")]
    assert found == [False, False, False, True]


def filled(count: int, *, keys: int, size_bytes: int) -> IdempotencyCache:
    cache = IdempotencyCache()
    for number in range(count):
        id_ = (f"key_{number % keys}", f"name-{number}")
        entry, _ = cache.begin(id_, DIGEST, now_s=0)
        cache.end(id_, entry, CachedAnswer(bytes(size_bytes), {}), keep=True)
    return cache


def test_a_key_has_a_share_and_all_together_a_bound() -> None:
    assert len(filled(IDEMPOTENT_ANSWERS_PER_KEY_MAX + 5, keys=1, size_bytes=1)) == IDEMPOTENT_ANSWERS_PER_KEY_MAX
    assert len(filled(IDEMPOTENT_ANSWERS_MAX + 5, keys=1000, size_bytes=1)) == IDEMPOTENT_ANSWERS_MAX


def test_answers_are_bounded_in_bytes() -> None:
    cache = filled(100, keys=100, size_bytes=IDEMPOTENT_ANSWER_BYTES_MAX)
    assert cache.size_bytes == IDEMPOTENT_ANSWERS_BYTES_MAX
    assert len(cache) == IDEMPOTENT_ANSWERS_BYTES_MAX // IDEMPOTENT_ANSWER_BYTES_MAX


@pytest.mark.parametrize("name", ["", "a b", "x" * 256, "ü"])
def test_a_name_is_short_and_visible(name: str) -> None:
    with pytest.raises(InvalidField):
        key_of({"idempotency-key": name})
    assert key_of({}) is None
    assert key_of({"idempotency-key": "9f-A_1"}) == "9f-A_1"


def test_a_digest_covers_path_body_and_options() -> None:
    ours, others = (
        Idempotency(cache=IdempotencyCache(), secret=secret, clock=ManualClock()) for secret in (b"k", b"l")
    )
    same = ours.digest("/a", b"body", "x", "y")
    assert same == ours.digest("/a", b"body", "x", "y")
    assert len({same, others.digest("/a", b"body", "x", "y"), ours.digest("/b", b"body", "x", "y")}) == 3
    assert same != ours.digest("/a", b"bodi", "x", "y")
    assert same != ours.digest("/a", b"body", "x", "z")
