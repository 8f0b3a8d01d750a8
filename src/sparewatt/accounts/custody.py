"""Custody of chain keys for accounts without a wallet: they are generated here, and stored only encrypted.

An account has one, and so has each of its nodes that is a provider of leases. They are sealed (AES-256-GCM) under a key
derived from the network's secret and bound to the ids of account and node: a row that is copied to another account or
node does not open. An attacker needs both the secret and the database.
"""

from __future__ import annotations

import stat
from pathlib import Path
from typing import NamedTuple

from sparewatt.accounts.sealer import Sealer, derive_key
from sparewatt.core.errors import StartupError
from sparewatt.core.ids import AccountId, NodeId
from sparewatt.core.rng import Rng
from sparewatt.protocol.signing import SigningKey
from sparewatt.store.accounts import AccountStore

SECRET_BYTES = 32
_BATCH = 100


class SealedChainKey(NamedTuple):
    address: str
    sealed: bytes


class Custody:
    def __init__(self, secret: bytes, *, rng: Rng) -> None:
        if len(secret) != SECRET_BYTES:
            raise ValueError(f"the network's secret has {SECRET_BYTES} bytes")
        self._sealer = Sealer(secret, purpose=b"sparewatt chain keys", rng=rng)
        self.fingerprint = derive_key(secret, b"sparewatt secret fingerprint")
        self._rng = rng

    def make(self, account_id: AccountId, node_id: NodeId | None = None) -> SealedChainKey:
        """The account's own key, or that of one of its nodes as a provider."""
        key = SigningKey.generate(rng=self._rng)
        secret = bytes.fromhex(key.secret_hex())
        return SealedChainKey(key.address, self._sealer.seal(secret, bound_to=_name(account_id, node_id)))

    def open(self, account_id: AccountId, sealed: bytes, node_id: NodeId | None = None) -> SigningKey:
        """Raises ValueError if it was sealed for another account or node, under another secret, or was changed."""
        return SigningKey(self._sealer.open(sealed, bound_to=_name(account_id, node_id)))


def _name(account_id: AccountId, node_id: NodeId | None) -> str:
    return account_id if node_id is None else f"{account_id} {node_id}"


def read_secret(text: str) -> bytes:
    """The network's secret from the settings. Raises StartupError, which does not repeat it."""
    secret = _parse(text)
    if secret is None:
        raise StartupError("SPAREWATT_SECRET is 64 hex digits. Make one with 'openssl rand -hex 32'.")
    return secret


def read_secret_file(path: Path) -> bytes:
    """The network's secret from its file. Raises StartupError or OSError."""
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise StartupError(f"Others may read {path}. Run 'chmod 600 {path}'.")
    secret = _parse(path.read_text())
    if secret is None:
        raise StartupError(f"{path} is damaged. Restore it from a backup: the accounts' chain keys need it.")
    return secret


def _parse(text: str) -> bytes | None:
    try:
        secret = bytes.fromhex(text.strip())
    except ValueError:
        return None
    return secret if len(secret) == SECRET_BYTES else None


async def check_secret(accounts: AccountStore, custody: Custody) -> None:
    """Raises StartupError if the network's chain keys are sealed under another secret."""
    if await accounts.secret_fingerprint(ours=custody.fingerprint) != custody.fingerprint:
        raise StartupError(
            "This gateway has another secret than the network it belongs to, and could not open its accounts' chain "
            "keys. Copy the file 'secret' from the data directory of the first gateway, or set SPAREWATT_SECRET."
        )


async def add_missing_chain_keys(accounts: AccountStore, custody: Custody) -> int:
    """Give a chain key to accounts that were made without the secret at hand. Returns how many."""
    added = 0
    while account_ids := await accounts.accounts_without_chain_key(limit=_BATCH):
        for account_id in account_ids:
            key = custody.make(account_id)
            await accounts.set_chain_key(account_id, address=key.address, sealed=key.sealed)
        added += len(account_ids)
    return added
