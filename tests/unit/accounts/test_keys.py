from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from sparewatt.accounts.keys import (
    KEY_PREFIX,
    PREFIX_CHARS,
    KeyRing,
    KeyService,
    check_name,
    check_scopes,
    hash_secret,
    new_secret,
)
from sparewatt.accounts.principal import SCOPES, principal_from_key, require_operator, require_scope
from sparewatt.core.errors import InvalidField, KeyNotFound, NotAllowed, NotAuthenticated
from sparewatt.core.ids import AccountId, KeyId
from sparewatt.core.limits import NAME_CHARS_MAX
from sparewatt.core.rng import SystemRng, seeded
from sparewatt.store.database import KeyTerms
from tests.unit.gateway.small_gateway import BORN, ListDatabase, key_row

SECRET = "sk-sw-0123456789abcdef"
ANN, BEN = AccountId("acc_ann"), AccountId("acc_ben")
NOW_S = BORN.timestamp()


def a_ring() -> KeyRing:
    ring = KeyRing()
    ring.put([key_row("app", SECRET, "inference"), key_row("gone", "sk-sw-gone", "inference", revoked=True)])
    return ring


def a_service() -> tuple[KeyService, KeyRing, ListDatabase]:
    ring, database = KeyRing(), ListDatabase()
    return KeyService(database, ring, rng=seeded(1)), ring, database


# the ring


def test_a_key_is_known_again_until_something_about_it_changes() -> None:
    ring = a_ring()
    row = ring.authenticate(f"Bearer {SECRET}", unix_s=NOW_S)
    ring.pop_used()
    assert ring.revalidate(row)
    assert ring.pop_used() == [row.id]
    ring.put([replace(row, version=row.version + 1, revoked_at=BORN)])
    assert not ring.revalidate(row)
    assert ring.pop_used() == []


def test_a_key_that_will_expire_is_looked_at_each_time() -> None:
    ring = KeyRing()
    row = replace(key_row("app", SECRET, "inference"), expires_at=BORN)
    ring.put([row])
    assert not ring.revalidate(row)


@pytest.mark.parametrize("header", [f"Bearer {SECRET}", f"bearer {SECRET}", f"BEARER  {SECRET} "])
def test_a_known_key_is_found(header: str) -> None:
    assert a_ring().authenticate(header, unix_s=NOW_S).name == "app"


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (None, "needs an API key"),
        ("", "needs an API key"),
        ("Bearer sk-sw-unknown", "not known here"),
        ("Bearer", "not known here"),
        ("Bearer \udcff\udcfe", "not known here"),
        (f"Basic {SECRET}", "must begin with 'Bearer '"),
        (SECRET, "must begin with 'Bearer '"),
        ("Bearer sk-sw-gone", "was revoked"),
    ],
)
def test_any_other_header_is_refused_with_what_to_do(header: str | None, message: str) -> None:
    with pytest.raises(NotAuthenticated, match=message):
        a_ring().authenticate(header, unix_s=NOW_S)


def test_a_refusal_never_shows_the_secret() -> None:
    with pytest.raises(NotAuthenticated) as caught:
        a_ring().authenticate("Bearer sk-sw-unknown-secret", unix_s=NOW_S)
    assert "unknown-secret" not in caught.value.message


def test_the_ring_knows_the_newest_version() -> None:
    ring = a_ring()
    ring.put([key_row("late", "sk-sw-late", version=9), key_row("early", "sk-sw-early", version=4)])
    assert ring.version == 9


def test_a_newer_row_replaces_an_older_one_and_not_the_reverse() -> None:
    """A slow answer from before the revocation must not bring a key back."""
    ring = a_ring()
    ring.put([key_row("app", SECRET, "inference", version=7, revoked=True)])
    ring.put([key_row("app", SECRET, "inference", version=6)])
    with pytest.raises(NotAuthenticated, match="revoked"):
        ring.authenticate(f"Bearer {SECRET}", unix_s=NOW_S)


def test_a_missing_scope_is_refused_and_named() -> None:
    who = principal_from_key(key_row("app", SECRET, "inference"))
    require_scope(who, "inference")
    with pytest.raises(NotAllowed, match="needs the scope 'admin', it has 'inference'"):
        require_scope(who, "admin")
    with pytest.raises(NotAllowed, match="it has none"):
        require_scope(principal_from_key(key_row("bare", SECRET)), "node")


def test_operating_the_network_takes_the_role_and_the_scope() -> None:
    operator = principal_from_key(key_row("boss", SECRET, "admin", role="operator"))
    require_operator(operator)
    assert operator.account_filter is None
    for row in (key_row("boss", SECRET, "inference", role="operator"), key_row("ann", SECRET, "admin", role="owner")):
        with pytest.raises(NotAllowed):
            require_operator(principal_from_key(row))
        assert principal_from_key(row).account_filter == row.account_id


def test_an_expired_key_is_refused_with_its_date() -> None:
    ring = KeyRing()
    ring.put([replace(key_row("old", SECRET, "inference"), expires_at=BORN)])
    assert ring.authenticate(f"Bearer {SECRET}", unix_s=NOW_S - 1).name == "old"
    with pytest.raises(NotAuthenticated, match="expired on 2026-01-01 00:00 UTC"):
        ring.authenticate(f"Bearer {SECRET}", unix_s=NOW_S)


def test_a_key_of_a_closed_account_is_refused() -> None:
    ring = KeyRing()
    ring.put([replace(key_row("shut", SECRET, "inference"), closed_at=BORN)])
    with pytest.raises(NotAuthenticated, match="closed"):
        ring.authenticate(f"Bearer {SECRET}", unix_s=NOW_S)


def test_used_keys_are_noted_once_and_refused_ones_never() -> None:
    ring = a_ring()
    for secret in (SECRET, SECRET, "sk-sw-gone"):
        with suppress(NotAuthenticated):
            ring.authenticate(f"Bearer {secret}", unix_s=NOW_S)
    assert ring.pop_used() == ["key_app"]
    assert ring.pop_used() == []


def test_the_account_of_a_job_is_that_of_its_key_or_is_named_itself() -> None:
    ring = a_ring()
    assert ring.account_of(KeyId("key_app")) == "acc_app"
    assert ring.account_of(KeyId("acc_ann")) == ANN
    assert ring.account_of(KeyId("key_none")) is None


# secrets


def test_a_secret_has_256_bits_behind_a_prefix() -> None:
    secret = new_secret(rng=SystemRng())
    assert secret.startswith(KEY_PREFIX)
    assert len(bytes.fromhex(secret.removeprefix(KEY_PREFIX))) == 32
    assert new_secret(rng=SystemRng()) != secret


def test_a_hash_is_sha256() -> None:
    assert hash_secret("sk-sw-é") == hashlib.sha256("sk-sw-é".encode()).digest()


# names and scopes


@pytest.mark.parametrize("name", ["a", "my laptop", "été 2026", "x" * NAME_CHARS_MAX])
def test_printable_names_are_taken(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize("name", ["", "x" * (NAME_CHARS_MAX + 1), "a\nb", "a\x00", "\x1b[31m", "\ud800"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidField) as caught:
        check_name(name)
    assert caught.value.param == "name"


@pytest.mark.parametrize("scopes", [[scope] for scope in SCOPES] + [list(SCOPES)])
def test_known_scopes_are_taken(scopes: list[str]) -> None:
    check_scopes(scopes)


@pytest.mark.parametrize("scopes", [[], ["root"], ["inference", "root"], ["Admin"]])
def test_other_scopes_are_refused(scopes: list[str]) -> None:
    with pytest.raises(InvalidField) as caught:
        check_scopes(scopes)
    assert caught.value.param == "scopes"


# the service


async def test_a_new_key_works_at_once_and_is_stored_only_as_its_hash() -> None:
    service, ring, database = a_service()
    row, secret = await service.create(ANN, terms=KeyTerms(name="app"), scopes=["inference", "inference"])
    assert ring.authenticate(f"Bearer {secret}", unix_s=NOW_S) == row
    assert database.keys == [row]
    assert row.hash == hash_secret(secret)
    assert row.prefix == secret[:PREFIX_CHARS]
    assert row.scopes == ("inference",)


async def test_a_bad_name_or_scope_stores_nothing() -> None:
    service, _, database = a_service()
    with pytest.raises(InvalidField):
        await service.create(ANN, terms=KeyTerms(name=""), scopes=["inference"])
    with pytest.raises(InvalidField):
        await service.create(ANN, terms=KeyTerms(name="app"), scopes=[])
    assert database.keys == []


async def test_a_revoked_key_stops_at_once() -> None:
    service, ring, _ = a_service()
    row, secret = await service.create(ANN, terms=KeyTerms(name="app"), scopes=["inference"])
    with pytest.raises(KeyNotFound):
        await service.revoke(row.id, account_id=BEN)
    assert (await service.revoke(row.id, account_id=ANN)).revoked_at is not None
    with pytest.raises(NotAuthenticated, match="revoked"):
        ring.authenticate(f"Bearer {secret}", unix_s=NOW_S)


async def test_revoking_an_unknown_key_says_so() -> None:
    service, _, _ = a_service()
    with pytest.raises(KeyNotFound):
        await service.revoke("key_none", account_id=None)
    with pytest.raises(KeyNotFound):
        await service.revoke("\x00", account_id=None)


async def test_a_sync_takes_over_what_another_process_changed() -> None:
    service, ring, database = a_service()
    database.keys.append(key_row("elsewhere", SECRET, "inference", version=3))
    await service.sync()
    assert ring.authenticate(f"Bearer {SECRET}", unix_s=NOW_S).name == "elsewhere"
    assert ring.version == 3


@pytest.mark.parametrize(
    "terms",
    [
        {"budget_nano": 0, "budget_period": "day"},
        {"budget_nano": -5, "budget_period": "day"},
        {"budget_nano": 10**19, "budget_period": "day"},
        {"budget_nano": 5},
        {"budget_period": "day"},
        {"requests_per_min": 0},
        {"tokens_per_min": 2**31},
        {"policy": '"' + "x" * 9000 + '"'},
    ],
)
async def test_invalid_limits_are_refused_and_store_nothing(terms: dict[str, Any]) -> None:
    service, _, database = a_service()
    with pytest.raises(InvalidField):
        await service.create(ANN, terms=KeyTerms(name="app", **terms), scopes=["inference"])
    assert database.keys == []


async def test_a_limit_that_an_admin_key_could_lift_by_itself_is_refused() -> None:
    service, _, _ = a_service()
    for terms in (KeyTerms(name="a", budget_nano=5, budget_period="day"), KeyTerms(name="a", policy="{}")):
        with pytest.raises(InvalidField, match="would not bind it"):
            await service.create(ANN, terms=terms, scopes=["inference", "admin"])
        await service.create(ANN, terms=terms, scopes=["inference", "node"])


async def test_a_policy_is_validated_before_it_is_stored() -> None:
    def refuse(text: str) -> None:
        raise InvalidField(f"no such field in {text}", param="policy")

    database = ListDatabase()
    service = KeyService(database, KeyRing(), rng=seeded(1), validate_policy=refuse)
    with pytest.raises(InvalidField, match="no such field"):
        await service.create(ANN, terms=KeyTerms(name="a", policy='{"colour": 1}'), scopes=["inference"])
    assert database.keys == []
