from __future__ import annotations

import datetime as dt

import pytest

from sparewatt.accounts.sessions import CACHE_S, CACHED_SESSIONS_MAX, Sessions, check_csrf, check_origin, csrf_token
from sparewatt.core.errors import CsrfRefused, SessionEnded
from sparewatt.core.ids import AccountId
from sparewatt.core.rng import seeded
from sparewatt.store.accounts import AccountStore, Role, SessionRow
from sparewatt.testing.clocks import ManualClock

ANN = AccountId("acc_ann")
LATER = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)


class SessionStore(AccountStore):
    def __init__(self) -> None:
        self.rows: dict[bytes, SessionRow] = {}
        self.role: Role = "user"
        self.looks = 0

    async def insert_session(self, hashed: bytes, *, account_id: AccountId, life_s: float) -> None:
        self.rows[hashed] = SessionRow(hashed, account_id, self.role, None, LATER)

    async def find_session(self, hashed: bytes) -> SessionRow | None:
        self.looks += 1
        return self.rows.get(hashed)

    async def end_session(self, hashed: bytes) -> None:
        self.rows.pop(hashed, None)


def some_sessions() -> tuple[Sessions, SessionStore, ManualClock]:
    store, clock = SessionStore(), ManualClock(now_s=100.0)
    return Sessions(store, clock=clock, rng=seeded(1)), store, clock


async def test_a_session_is_stored_only_as_a_hash() -> None:
    sessions, store, _ = some_sessions()
    token = await sessions.begin(ANN)
    assert (await sessions.find(token)).account_id == ANN
    assert all(token.encode() not in hashed and token not in hashed.hex() for hashed in store.rows)


async def test_a_session_is_looked_up_again_after_a_short_while() -> None:
    sessions, store, clock = some_sessions()
    token = await sessions.begin(ANN)
    await sessions.find(token)
    await sessions.find(token)
    assert store.looks == 1
    store.rows.clear()  # logged out at another gateway
    clock.advance(CACHE_S)
    with pytest.raises(SessionEnded):
        await sessions.find(token)


async def test_an_ended_session_is_ended_here_at_once() -> None:
    sessions, _, _ = some_sessions()
    token = await sessions.begin(ANN)
    await sessions.end(await sessions.find(token))
    with pytest.raises(SessionEnded):
        await sessions.find(token)


async def test_sessions_of_a_changed_account_are_looked_up_again() -> None:
    sessions, store, _ = some_sessions()
    token = await sessions.begin(ANN)
    await sessions.find(token)
    sessions.invalidate(AccountId("acc_ben"))
    await sessions.find(token)
    assert store.looks == 1
    sessions.invalidate(ANN)
    await sessions.find(token)
    assert store.looks == 2


async def test_memory_is_bounded() -> None:
    sessions, _, _ = some_sessions()
    for _ in range(CACHED_SESSIONS_MAX + 5):
        await sessions.find(await sessions.begin(ANN))
    assert len(sessions._cache) == CACHED_SESSIONS_MAX


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_a_safe_method_needs_no_csrf_token(method: str) -> None:
    check_csrf(token="t", method=method, csrf=None)


@pytest.mark.parametrize("csrf", [None, "", "t", csrf_token("other"), csrf_token("t")[:-1], "\xff"])
@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE", "PUT", "ODD"])
def test_an_unsafe_method_needs_the_sessions_csrf_token(method: str, csrf: str | None) -> None:
    check_csrf(token="t", method=method, csrf=csrf_token("t"))
    with pytest.raises(CsrfRefused):
        check_csrf(token="t", method=method, csrf=csrf)


@pytest.mark.parametrize("origin", ["null", "https://evil.example", "http://ours.example", "https://ours.example.evil"])
def test_another_origin_is_refused_and_none_is_not(origin: str) -> None:
    ours = frozenset({"https://ours.example"})
    check_origin(None, ours=ours)
    check_origin("https://OURS.example", ours=ours)
    with pytest.raises(CsrfRefused):
        check_origin(origin, ours=ours)
