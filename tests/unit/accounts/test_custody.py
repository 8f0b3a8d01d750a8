from __future__ import annotations

import pytest

from sparewatt.accounts.custody import Custody, add_missing_chain_keys, check_secret, read_secret
from sparewatt.core.errors import StartupError
from sparewatt.core.ids import AccountId, NodeId
from sparewatt.core.rng import SystemRng, seeded
from sparewatt.store.accounts import AccountStore

ANN, BEN = AccountId("acc_ann"), AccountId("acc_ben")


def custody(secret: bytes = b"s" * 32) -> Custody:
    return Custody(secret, rng=SystemRng())


def test_a_key_opens_for_its_account_and_signs_by_its_address() -> None:
    made = custody().make(ANN)
    key = custody().open(ANN, made.sealed)
    assert key.address == made.address
    assert bytes.fromhex(key.secret_hex()) not in made.sealed


def test_it_opens_for_no_other_account_and_under_no_other_secret() -> None:
    made = custody().make(ANN)
    for keeper, account in ((custody(), BEN), (custody(b"t" * 32), ANN)):
        with pytest.raises(ValueError, match="MAC check failed"):
            keeper.open(account, made.sealed)


def test_a_changed_byte_is_noticed_wherever_it_is() -> None:
    sealed = custody().make(ANN).sealed
    for at in range(len(sealed)):
        changed = sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :]
        with pytest.raises(ValueError):  # noqa: PT011 (which of the two does not matter)
            custody().open(ANN, changed)


def test_two_keys_of_one_account_are_sealed_apart() -> None:
    assert custody().make(ANN).sealed != custody().make(ANN).sealed


def test_a_secret_is_64_hex_digits() -> None:
    assert read_secret(" " + "ab" * 32 + "\n") == b"\xab" * 32
    for text in ("", "ab", "zz" * 32, "ab" * 33):
        with pytest.raises(StartupError) as caught:
            read_secret(text)
        assert not text or text not in caught.value.message
    with pytest.raises(ValueError, match="32 bytes"):
        Custody(b"short", rng=seeded(1))


class KeyStore(AccountStore):
    """Accounts without a key, and what became of them."""

    def __init__(self, *missing: AccountId, fingerprint: bytes = b"") -> None:
        self.missing = list(missing)
        self.keys: dict[AccountId, tuple[str, bytes]] = {}
        self.fingerprint = fingerprint

    async def accounts_without_chain_key(self, *, limit: int) -> list[AccountId]:
        return [account for account in self.missing if account not in self.keys][:limit]

    async def set_chain_key(self, account_id: AccountId, *, address: str, sealed: bytes) -> None:
        self.keys[account_id] = (address, sealed)

    async def secret_fingerprint(self, *, ours: bytes) -> bytes:
        self.fingerprint = self.fingerprint or ours
        return self.fingerprint


async def test_accounts_that_have_none_get_a_key() -> None:
    store = KeyStore(ANN, BEN)
    assert await add_missing_chain_keys(store, custody()) == 2
    assert all(custody().open(account, sealed).address == address for account, (address, sealed) in store.keys.items())
    assert await add_missing_chain_keys(store, custody()) == 0


async def test_a_gateway_with_another_secret_does_not_start() -> None:
    store = KeyStore()
    await check_secret(store, custody())
    await check_secret(store, custody())
    with pytest.raises(StartupError, match="SPAREWATT_SECRET"):
        await check_secret(store, custody(b"t" * 32))


def test_a_providers_key_opens_for_its_account_and_node_only() -> None:
    node, other = NodeId("0x" + "1" * 40), NodeId("0x" + "2" * 40)
    made = custody().make(ANN, node)
    assert custody().open(ANN, made.sealed, node).address == made.address
    for account, wrong in ((ANN, other), (ANN, None), (BEN, node)):
        with pytest.raises(ValueError, match="MAC check failed"):
            custody().open(account, made.sealed, wrong)
    own = custody().make(ANN)
    with pytest.raises(ValueError, match="MAC check failed"):
        custody().open(ANN, own.sealed, node)
