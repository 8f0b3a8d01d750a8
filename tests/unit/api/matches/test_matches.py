"""Explanations that outlive the ring, and the owner's question."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparewatt.core.errors import StoreUnavailable
from sparewatt.core.ids import KeyId, MatchId, NodeId
from sparewatt.core.limits import MATCHES_LOOKED_BACK_MAX
from sparewatt.gateway.services import Services
from sparewatt.inference.matcher.ranking import BALANCED
from sparewatt.telemetry.explanations import MATCHES_STORED_AT_ONCE
from tests.unit.gateway.small_gateway import ADMIN, LENDER, OTHER, USER, ListDatabase, bearer, make_services, running
from tests.unit.inference.nodes import a_dispatched_job, a_job, a_model, a_table, node_id, some_specs
from tests.unit.inference.scripted import RecordingSink


def fail_some(services: Services, count: int = 1, *, model: str = "nobody-has-it") -> None:
    """Jobs of the user's that found no node: match_0, match_1, …"""
    for number in range(count):
        match = a_job(id=MatchId(f"match_{number}"), model=model)
        job = a_dispatched_job(match=match, key_id=KeyId("key_user"))
        services.dispatcher.dispatch(job, RecordingSink(), ranking=BALANCED)


def database_of(services: Services) -> ListDatabase:
    assert isinstance(services.database, ListDatabase)
    return services.database


def forget_ring(services: Services) -> None:
    services.dispatcher._ring.clear()


# stored explanations


async def test_a_failure_is_stored_in_words_by_the_background() -> None:
    services = make_services(a_table(1))
    fail_some(services)
    assert database_of(services).matches == {}
    await services.explanations.store()
    stored = database_of(services).matches[MatchId("match_0")]
    assert (stored.key_id, stored.outcome) == ("key_user", "failed")
    assert json.loads(stored.explanation)["match_id"] == "match_0"
    await services.explanations.store()
    assert len(database_of(services).matches) == 1


@pytest.mark.parametrize(("secret", "status"), [(USER, 200), (ADMIN, 200), (OTHER, 404)])
async def test_a_stored_explanation_is_the_same_and_for_the_same_people(secret: str, status: int) -> None:
    services = make_services(a_table(1))
    fail_some(services)
    async with running(services) as client:
        fresh = await client.get("/v1/matches/match_0", headers=bearer(USER))
        await services.explanations.store()
        forget_ring(services)
        stored = await client.get("/v1/matches/match_0", headers=bearer(secret))
        assert stored.status == status
        assert stored.content_type == "application/json"
        if status == 200:
            assert await stored.json() == await fresh.json()


async def test_a_few_are_stored_at_a_time() -> None:
    services = make_services()
    fail_some(services, MATCHES_STORED_AT_ONCE + 5)
    await services.explanations.store()
    assert len(database_of(services).matches) == MATCHES_STORED_AT_ONCE
    await services.explanations.store()
    assert len(database_of(services).matches) == MATCHES_STORED_AT_ONCE + 5


async def test_what_could_not_be_stored_is_stored_the_next_time() -> None:
    services = make_services()
    fail_some(services, 3)

    def fail() -> None:
        raise StoreUnavailable("the database is away")

    database_of(services).on_save = fail
    with pytest.raises(StoreUnavailable):
        await services.explanations.store()
    database_of(services).on_save = lambda: None
    await services.explanations.store()
    assert list(database_of(services).matches) == ["match_0", "match_1", "match_2"]


@pytest.mark.parametrize("wanted", ["%00", "match_%00", "match_'; DROP", "m" * 500, "match_", "match_%F0%9F%92%A9"])
async def test_what_is_no_id_is_not_looked_for(wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    services = make_services()
    monkeypatch.setattr(services.database, "find_match", None)  # asking would be a crash
    async with running(services) as client:
        assert (await client.get(f"/v1/matches/{wanted}", headers=bearer())).status == 404


# the owner's question


async def why(services: Services, wanted: str, *, secret: str = LENDER, query: str = "") -> tuple[int, dict[str, Any]]:
    async with running(services) as client:
        reply = await client.get(f"/v1/nodes/{wanted}/why{query}", headers=bearer(secret))
        return reply.status, await reply.json()


@pytest.mark.parametrize(("secret", "status"), [(LENDER, 200), (ADMIN, 200), (USER, 403), ("sk-sw-unknown", 401)])
async def test_owners_and_operators_may_ask(secret: str, status: int) -> None:
    assert (await why(make_services(a_table(1)), node_id(1), secret=secret))[0] == status


async def test_who_lends_other_nodes_may_not_ask_about_this_one() -> None:
    services = make_services(a_table(1))
    services.links.owners.clear()
    status, told = await why(services, node_id(1))
    assert (status, told["error"]["code"]) == (403, "not_owner")
    assert "another account" in told["error"]["message"]


async def test_the_answer_has_numbers_and_sentences() -> None:
    services = make_services(a_table(1))
    fail_some(services, 3)
    status, told = await why(services, node_id(1).upper().replace("0X", "0x"))
    assert status == 200
    assert told == {
        "node": node_id(1),
        "name": "attic",
        "matches": 3,
        "chosen": 0,
        "outcomes": {},
        "lost": {"count": 0, "mean_gap_s": None, "worst_parts_s": {}},
        "rejected": {"model": 3},
        "ruled_out": 0,
        "unlisted": 0,
        "sentences": ["The node got no job in the last 3 matches.", "It did not have the model in 3 of them."],
    }


async def test_a_node_may_be_asked_for_by_its_name_if_that_is_its_alone() -> None:
    table = a_table(2)
    table.connect(node_id(3), some_specs(a_model(), name="cellar"), now_s=0)
    services = make_services(table)
    assert (await why(services, "cellar"))[1]["node"] == node_id(3)
    status, told = await why(services, "attic")
    assert (status, "2 nodes" in told["error"]["message"]) == (404, True)
    assert (await why(services, "nobody"))[0] == 404


async def test_a_node_may_be_asked_for_by_the_start_of_its_address_if_that_is_its_alone() -> None:
    mine, other = node_id(1), NodeId("0xabcdef" + "0" * 34)
    table = a_table(1)
    table.connect(other, some_specs(a_model(), name="cellar"), now_s=0)
    services = make_services(table)
    assert (await why(services, "0xABCDEF00"))[1]["node"] == other
    assert (await why(services, mine[:10]))[1]["node"] == mine
    assert (await why(services, "0xab"))[0] == 404
    twice = NodeId("0xabcdef" + "1" * 34)
    table.connect(twice, some_specs(a_model(), name="cellar"), now_s=0)
    status, told = await why(make_services(table), "0xabcdef")
    assert (status, "2 nodes" in told["error"]["message"]) == (404, True)


async def test_matches_from_before_a_node_joined_are_not_held_against_it() -> None:
    services = make_services(a_table(1))
    fail_some(services, 3)
    services.links.joined_unix_s[node_id(1)] = services.clock.unix_s() + 1
    assert (await why(services, node_id(1)))[1]["matches"] == 0


async def test_only_the_last_matches_are_looked_at() -> None:
    services = make_services(a_table(1))
    fail_some(services, 5)
    assert (await why(services, node_id(1), query="?last=2"))[1]["matches"] == 2


@pytest.mark.parametrize("last", ["0", "-1", "x", "", "1.5", str(MATCHES_LOOKED_BACK_MAX + 1), "9" * 5000, "²"])
async def test_a_count_that_is_none_is_refused(last: str) -> None:
    status, told = await why(make_services(a_table(1)), node_id(1), query=f"?last={last}")
    assert (status, told["error"]["param"]) == (400, "last")
