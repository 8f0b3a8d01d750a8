"""Accounts and keys in a real Postgres: the step from before accounts, and keys against a small model."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import asyncpg
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from sparewatt.accounts.keys import KeyRing, KeyService, hash_secret, terms_of
from sparewatt.core.errors import InvalidField, KeyNotFound, NotAuthenticated
from sparewatt.core.ids import AccountId, KeyId, NodeId, new_id
from sparewatt.core.rng import SystemRng
from sparewatt.postgres.server import EmbeddedPostgres
from sparewatt.store import migrations
from sparewatt.store.accounts import NewAccount, Role
from sparewatt.store.database import Database, KeyTerms
from tests.integration.databases import empty_database

T = TypeVar("T")
NODE = "0x" + "a" * 40
RNG = SystemRng()


class Room:
    """A database and a loop to talk to it in, for tests that are not coroutines."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        self._runner = asyncio.Runner()
        self.dsn = self.run(empty_database(server, "stored_accounts"))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def close(self) -> None:
        self._runner.close()


@pytest.fixture(scope="module")
def room(server: EmbeddedPostgres) -> Iterator[Room]:
    room = Room(server)
    yield room
    room.close()


async def from_before_accounts(dsn: str, monkeypatch: pytest.MonkeyPatch) -> Database:
    """A database as the release before had it, with a key, a token and a node, then brought up to date."""
    shipped = migrations.shipped_migrations()
    connection = await asyncpg.connect(dsn)
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "shipped_migrations", lambda: shipped[:2])
        await migrations.migrate(connection)
    await connection.execute(
        "INSERT INTO api_keys (id, name, hash, prefix, scopes) VALUES ('key_old', 'old', $1, 'sk-sw-old', '{admin}')",
        hash_secret("sk-sw-old"),
    )
    await connection.execute("INSERT INTO nodes (id) VALUES ($1)", NODE)
    await connection.execute(
        "INSERT INTO join_tokens (hash, created_by, expires_at) VALUES ($1, 'key_old', now() + interval '1 day')",
        hash_secret("join-sw-old"),
    )
    await connection.close()
    return await Database.connect(dsn)


def test_what_was_there_before_accounts_is_the_operator_s_and_goes_on_working(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = room.run(from_before_accounts(room.dsn, monkeypatch))
    try:
        key = room.run(database.find_key(hash_secret("sk-sw-old")))
        assert key is not None
        assert (key.account_id, key.role, key.budget_nano, key.expires_at) == ("acc_network", "operator", None, None)
        owner = room.run(database.find_node_owner(NodeId(NODE)))
        assert owner is not None
        assert (owner.account_id, owner.closed) == ("acc_network", False)
        other = "0x" + "b" * 40
        assert room.run(database.exchange_join_token(hash_secret("join-sw-old"), other)) == "accepted"  # type: ignore[arg-type]
    finally:
        room.run(database.close())


@dataclass(frozen=True)
class ModelKey:
    """What is true of a key, as far as its holder can tell."""

    id: str
    secret: str
    account: AccountId
    terms: KeyTerms
    revoked: bool = False


NOW = dt.datetime(2026, 11, 15, tzinfo=dt.UTC)
terms = st.builds(
    KeyTerms,
    name=st.sampled_from(["app", "été", "x" * 100]),
    policy=st.sampled_from([None, "{}", '{"region": ["EU"]}', '"region=EU"']),
    expires_at=st.sampled_from([None, NOW - dt.timedelta(days=1), NOW + dt.timedelta(days=1)]),
    requests_per_min=st.sampled_from([None, 1, 2**31 - 1]),
    tokens_per_min=st.sampled_from([None, 7]),
).flatmap(
    lambda made: st.sampled_from(
        [
            made,
            replace(made, budget_nano=5, budget_period="day"),
            replace(made, budget_nano=10**18, budget_period="month"),
        ]
    )
)
bad_terms = st.sampled_from(
    [
        KeyTerms(name=""),
        KeyTerms(name="x" * 101),
        KeyTerms(name="a", budget_nano=0, budget_period="day"),
        KeyTerms(name="a", budget_nano=-1, budget_period="week"),
        KeyTerms(name="a", budget_nano=5),
        KeyTerms(name="a", requests_per_min=0),
    ]
)


class KeyMachine(RuleBasedStateMachine):
    """Two gateways on one database: one that changes things, one that only looks now and then."""

    room: Room
    database: Database

    accounts = Bundle("accounts")
    keys = Bundle("keys")

    @initialize()
    def begin(self) -> None:
        self.here, self.there = KeyRing(), KeyRing()
        self.service = KeyService(self.database, self.here, rng=RNG)
        self.other = KeyService(self.database, self.there, rng=RNG)
        self.model: dict[str, ModelKey] = {}
        self.roles: dict[AccountId, Role] = {}
        self.policies: dict[AccountId, str | None] = {}
        self.closed: set[AccountId] = set()

    @rule(target=accounts)
    def open_account(self) -> AccountId:
        account = AccountId(new_id("acc", rng=RNG))
        self.room.run(self.database.accounts.ensure_account(NewAccount(account, "somebody")))
        self.roles[account] = "user"
        return account

    @rule(target=keys, account=accounts, wanted=terms)
    def create(self, account: AccountId, wanted: KeyTerms) -> str:
        row, secret = self.room.run(self.service.create(account, terms=wanted, scopes=["inference"]))
        self.model[row.id] = ModelKey(row.id, secret, account, wanted)
        return row.id

    @rule(account=accounts, wanted=bad_terms)
    def create_badly(self, account: AccountId, wanted: KeyTerms) -> None:
        with pytest.raises(InvalidField):
            self.room.run(self.service.create(account, terms=wanted, scopes=["inference"]))

    @rule(key=keys, wanted=terms)
    def limit(self, key: str, wanted: KeyTerms) -> None:
        known = self.model[key]
        change = self.service.change_terms(key, account_id=known.account, change=lambda _: wanted)
        if known.revoked:
            with pytest.raises(InvalidField):
                self.room.run(change)
        else:
            self.room.run(change)
            self.model[key] = replace(known, terms=wanted)

    @rule(key=keys, wanted=bad_terms)
    def limit_badly(self, key: str, wanted: KeyTerms) -> None:
        with pytest.raises(InvalidField):
            self.room.run(self.service.change_terms(key, account_id=None, change=lambda _: wanted))

    @rule(key=keys)
    def revoke(self, key: str) -> None:
        self.room.run(self.service.revoke(key, account_id=self.model[key].account))
        self.model[key] = replace(self.model[key], revoked=True)

    @rule(key=keys, account=accounts)
    def touch_as_another(self, key: str, account: AccountId) -> None:
        if account == self.model[key].account:
            return
        with pytest.raises(KeyNotFound):
            self.room.run(self.service.revoke(key, account_id=account))
        with pytest.raises(KeyNotFound):
            self.room.run(self.service.change_terms(key, account_id=account, change=terms_of))

    @rule(account=accounts, role=st.sampled_from(["user", "owner", "operator"]))
    def set_role(self, account: AccountId, role: Role) -> None:
        self.room.run(self.database.accounts.set_role(account, role))
        self.room.run(self.service.sync())
        self.roles[account] = role

    @rule(account=accounts, policy=st.sampled_from([None, '{"region": "EU"}']))
    def describe_account(self, account: AccountId, policy: str | None) -> None:
        self.room.run(self.database.accounts.update_account(account, name="renamed", policy=policy))
        self.room.run(self.service.sync())
        self.policies[account] = policy

    @rule(account=consumes(accounts))
    def close_account(self, account: AccountId) -> None:
        self.room.run(self.database.accounts.close_account(account))
        self.room.run(self.service.sync())
        self.closed.add(account)

    @rule()
    def the_other_gateway_looks(self) -> None:
        self.room.run(self.other.sync())
        self._check(self.there)

    @invariant()
    def this_gateway_knows_what_is_true(self) -> None:
        self._check(self.here)

    def _check(self, ring: KeyRing) -> None:
        for key in self.model.values():
            expired = key.terms.expires_at is not None and key.terms.expires_at <= NOW
            ended = key.revoked or expired or key.account in self.closed
            try:
                row = ring.authenticate(f"Bearer {key.secret}", unix_s=NOW.timestamp())
            except NotAuthenticated:
                assert ended
            else:
                assert not ended
                assert (row.id, row.account_id, row.role) == (key.id, key.account, self.roles[key.account])
                assert row.account_policy == self.policies.get(key.account)
                assert terms_of(row) == key.terms
                assert ring.account_of(KeyId(key.id)) == key.account


def test_keys_behave_as_a_small_model_says_at_two_gateways(room: Room) -> None:
    database = room.run(Database.connect(room.dsn))

    class Machine(KeyMachine):
        pass

    Machine.room, Machine.database = room, database
    try:
        run_state_machine_as_test(
            Machine, settings=settings(max_examples=25, stateful_step_count=25, deadline=None, derandomize=True)
        )
    finally:
        room.run(database.close())
