"""/v1/market over a gateway whose index has the life of two orders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from sparewatt.leasing.market_index import MarketIndex
from sparewatt.leasing.relay.vote_counts import RecentVoteCounts
from sparewatt.market.reopening import REOPEN_BASE_S
from sparewatt.market.voting_record import RecentVotes
from sparewatt.protocol.contracts.chain_events import ChainEvent
from tests.unit.gateway.small_gateway import USER, Client, make_services, running
from tests.unit.leasing.test_market_index import MemoryEvents
from tests.unit.market.market_events import (
    ALICE,
    BOB,
    CAROL,
    HASH,
    OPERATOR,
    ORDER,
    OTHER_OPERATOR,
    OTHER_ORDER,
    OTHER_VOTE_KEY,
    RENTER,
    START_S,
    TERMS,
    VOTE_KEY,
    a_life,
    accepted,
    an_event,
    confirmed,
    created,
    deposited,
    in_blocks,
    lookup,
    no_match,
    registered,
    snapshot,
    stream_started,
    validator,
    weighed,
)

RUNNING = [*registered(), lookup(), deposited(), accepted(), created(), confirmed(), stream_started()]


NO_VOTES = {"agreed": 0, "differed": 0, "missed": 0}


class SomeVotes:
    async def recent(self) -> Mapping[str, RecentVotes]:
        return {OTHER_OPERATOR: RecentVotes(agreed=7, differed=1, missed=2)}


async def market_of(events: list[ChainEvent], *, depth: int = 1) -> MarketIndex:
    placed = in_blocks(events)
    source = MemoryEvents(depth=depth)
    source.index(placed, to_block=len(placed))
    index = MarketIndex(source, has_chain=True)
    await index.follow()
    return index


async def get(client: Client, path: str, *, key: str | None = USER) -> tuple[int, Any]:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    reply = await client.get(f"/v1/market/{path}", headers=headers)
    return reply.status, await reply.json()


async def ask(path: str, events: list[ChainEvent], *, depth: int = 1) -> Any:
    services = make_services()
    services.market = await market_of(events, depth=depth)
    services.recent_votes = cast("RecentVoteCounts", SomeVotes())
    async with running(services) as client:
        status, answer = await get(client, path)
    assert status == 200, answer
    return answer


async def test_an_order_is_shown_with_its_lease() -> None:
    order = await ask(f"orders/{ORDER}", RUNNING)
    assert (order["id"], order["renter"], order["state"], order["reason"]) == (ORDER, RENTER, "matched", None)
    assert (order["gpu_units"], order["gpu_models"], order["min_vram_gb"]) == (1, 2, 24)
    assert order["gpu_names"] == ["rtx-2060"]
    assert (order["max_hourly_usd"], order["deposit_usd"], order["duration_s"]) == ("3", "5", 3_600)
    assert (order["charged_usd"], order["refunded_usd"]) == ("0", None)
    assert (order["candidates"], order["failed"], order["only"]) == ([ALICE, BOB], [], [])
    assert (order["spec_hash"], order["stake_version"], order["snapshot_epoch"]) == (HASH, 2, 1)
    lease = order["lease"]
    assert (lease["state"], lease["provider"], lease["hourly_usd"], lease["term"]) == ("active", ALICE, "2", 1)
    assert (lease["ends_at"], lease["paused_at"], lease["close_reason"]) == (START_S + 3_700, None, None)


async def test_an_order_has_the_windows_of_its_auction_and_the_accepted_certificate() -> None:
    order = await ask(f"orders/{ORDER}", [lookup(), accepted()])
    assert (order["commit_ms"], order["reveal_ms"]) == (TERMS.commit_ms, TERMS.reveal_ms)
    certificate = order["certificate"]
    assert (certificate["bid_count"], certificate["round"], certificate["accepted_at"]) == (5, 1, START_S + 20)
    assert certificate["signers"] == [VOTE_KEY, OTHER_VOTE_KEY]
    assert len(certificate["task_digest"]) == 66
    nobody = await ask(f"orders/{ORDER}", [lookup(), no_match()])
    assert (nobody["candidates"], nobody["certificate"]["signers"]) == ([], [VOTE_KEY])
    assert (await ask(f"orders/{ORDER}", [lookup()]))["certificate"] is None


async def test_an_unmatched_order_tells_when_its_next_auction_opens() -> None:
    unmatched = an_event("deployment_order.OrderUnmatched", order_id=ORDER, attempt=0, reason=98)
    waiting = await ask(f"orders/{ORDER}", [lookup(), deposited(), unmatched])
    assert waiting["next_attempt_at"] == waiting["opened_at"] + REOPEN_BASE_S
    assert (await ask(f"orders/{ORDER}", [lookup(), deposited()]))["next_attempt_at"] is None, "it is open"
    used_up = await ask(f"orders/{ORDER}", [lookup(max_attempts=0), deposited(), unmatched])
    assert used_up["next_attempt_at"] is None


async def test_reasons_have_the_names_of_the_protocol() -> None:
    unmatched = an_event("deployment_order.OrderUnmatched", order_id=ORDER, attempt=0, reason=98)
    assert (await ask(f"orders/{ORDER}", [lookup(), unmatched]))["reason"] == "NO_QUORUM"
    lease = await ask(f"leases/{ORDER}", a_life())
    assert (lease["state"], lease["close_reason"], lease["hand_over_reason"]) == (
        "closed",
        "PROVIDER_RECLAIM",
        "NO_START",
    )
    strange = an_event("deployment_order.OrderUnmatched", order_id=ORDER, attempt=0, reason=77)
    assert (await ask(f"orders/{ORDER}", [lookup(), strange]))["reason"] == "77"


async def test_what_is_not_deep_enough_for_money_is_not_final() -> None:
    deep = await ask("orders", RUNNING, depth=3)
    assert (deep["latest_block"], deep["final_block"]) == (11, 9)
    assert deep["data"][0]["final"] is True
    assert deep["data"][0]["lease"]["final"] is False
    assert (await ask(f"leases/{ORDER}", RUNNING, depth=1))["final"] is True


async def test_ended_orders_are_listed_on_demand() -> None:
    assert (await ask("orders", a_life()))["data"] == []
    assert [order["id"] for order in (await ask("orders?which=all", a_life()))["data"]] == [OTHER_ORDER, ORDER]
    assert (await ask("leases", a_life()))["data"] == []
    assert [lease["id"] for lease in (await ask("leases?which=all", a_life()))["data"]] == [ORDER]


async def test_lists_can_be_of_one_renter_or_provider() -> None:
    assert len((await ask(f"orders?renter={RENTER.upper().replace('0X', '0x')}", RUNNING))["data"]) == 1
    assert (await ask(f"orders?renter={ALICE}", RUNNING))["data"] == []
    assert len((await ask(f"leases?provider={ALICE}&renter={RENTER}", RUNNING))["data"]) == 1
    assert (await ask(f"leases?provider={BOB}", RUNNING))["data"] == []
    assert (await ask(f"leases?renter={BOB}", RUNNING))["data"] == []


async def test_a_long_list_comes_in_pages_the_newest_first() -> None:
    ids = [f"0x{number:064x}" for number in range(7)]
    services = make_services()
    services.market = await market_of([lookup(order_id) for order_id in ids])
    seen, after = [], ""
    async with running(services) as client:
        for _ in range(4):
            _, page = await get(client, f"orders?limit=2{after}")
            assert len(page["data"]) <= 2
            seen += [order["id"] for order in page["data"]]
            if page["next"] is None:
                break
            after = f"&after={page['next']}"
    assert seen == ids[::-1]


async def test_providers_are_shown_with_claims_and_bond() -> None:
    left = an_event("provider_registry.StatusChanged", provider=BOB, status=5, reason="0x" + "00" * 32)
    events = [*registered(ALICE), *registered(BOB), left]
    (provider,) = (await ask("providers", events))["data"]
    assert (provider["id"], provider["status"]) == (ALICE, "active")
    assert (provider["gpu_model"], provider["vram_gb"], provider["gpu_units"]) == (3, 24, 2)
    assert (provider["price_hint_usd"], provider["free_usd"], provider["unbonding_usd"]) == (
        "2",
        "0.000005",
        "0.000001",
    )
    assert [each["id"] for each in (await ask("providers?which=all", events))["data"]] == [BOB, ALICE]


async def test_a_provider_without_claims_is_shown() -> None:
    bare = [an_event("provider_registry.ProviderRegistered", provider=CAROL)]
    (provider,) = (await ask("providers", bare))["data"]
    assert (provider["node_key"], provider["gpu_units"], provider["free_usd"]) == (None, 0, "0")


async def test_validators_are_shown_with_their_weight_and_the_newest_snapshot() -> None:
    events = [
        validator(OTHER_OPERATOR, "0x" + "8" * 40, "https://w.example"),
        validator(),
        weighed(VOTE_KEY, version=1, weight=9_000_000, total=9_000_000),
        snapshot(1),
        snapshot(2),
    ]
    answer = await ask("validators", events)
    assert (answer["stake_version"], answer["total_usd"], answer["snapshot"]["epoch"]) == (1, "9", 2)
    shown = [(each["id"], each["weight_usd"], each["url"], each["jailed"]) for each in answer["data"]]
    assert shown == [(OPERATOR, "9", "https://v.example", False), (OTHER_OPERATOR, "0", "https://w.example", False)]
    empty = await ask("validators", [])
    assert (empty["stake_version"], empty["total_usd"], empty["snapshot"], empty["data"]) == (0, "0", None, [])


async def test_validators_are_shown_with_what_certificates_say_of_them() -> None:
    events = [
        validator(),
        validator(OTHER_OPERATOR, OTHER_VOTE_KEY),
        weighed(VOTE_KEY, version=1, weight=9, total=9),
        weighed(OTHER_VOTE_KEY, version=2, weight=4, total=13, operator=OTHER_OPERATOR),
        lookup(),
        no_match(),
    ]
    one, other = (await ask("validators", events))["data"]
    assert (one["certificates"], one["votes"], one["last_vote_at"]) == (1, 1, START_S + 60)
    assert (other["certificates"], other["votes"], other["last_vote_at"]) == (1, 0, None)
    assert (one["recent"], other["recent"]) == (NO_VOTES, {"agreed": 7, "differed": 1, "missed": 2})


@pytest.mark.parametrize("path", ["orders/0x12", "leases/0x12", f"leases/{ORDER}"])
async def test_what_is_not_there_is_not_found(path: str) -> None:
    services = make_services()
    services.market = await market_of([lookup()])
    async with running(services) as client:
        status, answer = await get(client, path)
    assert (status, answer["error"]["code"]) == (404, "not_found")


@pytest.mark.parametrize("query", ["which=some", "limit=0", "limit=201", "after=nonsense"])
async def test_a_bad_query_is_refused(query: str) -> None:
    services = make_services()
    services.market = await market_of([])
    async with running(services) as client:
        assert (await get(client, f"orders?{query}"))[0] == 400


PATHS = ["orders", f"orders/{ORDER}", "leases", f"leases/{ORDER}", "providers", "validators"]


@pytest.mark.parametrize("path", PATHS)
async def test_a_network_without_a_chain_says_so(path: str) -> None:
    async with running(make_services()) as client:
        status, answer = await get(client, path)
    assert (status, answer["error"]["code"]) == (409, "no_chain")
    assert "--no-chain" in answer["error"]["message"]


@pytest.mark.parametrize("path", PATHS)
async def test_strangers_see_nothing(path: str) -> None:
    async with running(make_services()) as client:
        assert (await get(client, path, key=None))[0] == 401
