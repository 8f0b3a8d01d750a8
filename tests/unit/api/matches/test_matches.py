"""Explanations of past matches, in memory and stored: what is stored, and who may read it."""

from __future__ import annotations

import json

import pytest

from sparewatt.core.errors import StoreUnavailable
from sparewatt.core.ids import KeyId, MatchId
from sparewatt.gateway.services import Services
from sparewatt.inference.matcher.formula import BALANCED
from sparewatt.telemetry.explanations import MATCHES_STORED_AT_ONCE
from tests.unit.gateway.small_gateway import ADMIN, OTHER, USER, ListDatabase, bearer, make_services, running
from tests.unit.inference.nodes import a_dispatched_job, a_job, a_table
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
    services.dispatcher._ring._records.clear()
    services.dispatcher._ring._order.clear()


# stored explanations


async def test_the_explanation_of_a_failure_is_stored_in_the_background() -> None:
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
async def test_a_stored_explanation_is_the_same_and_for_the_same_accounts(secret: str, status: int) -> None:
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


@pytest.mark.parametrize("match_id", ["%00", "match_%00", "match_'; DROP", "m" * 500, "match_", "match_%F0%9F%92%A9"])
async def test_a_malformed_id_is_not_queried(match_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    services = make_services()
    monkeypatch.setattr(services.database, "find_match", None)  # a query would be a crash
    async with running(services) as client:
        assert (await client.get(f"/v1/matches/{match_id}", headers=bearer())).status == 404
