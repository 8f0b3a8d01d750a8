"""Chain keys that a gateway holds for accounts without a wallet: made here, and stored only sealed.

Sealed means AES-256-GCM under a key derived from the network's secret, bound to the account's id: a row that is copied
to another account does not open. Who has both the secret and the database has the keys; neither alone is enough.
"""

from __future__ import annotations

import stat
from pathlib import Path
from typing import NamedTuple

from sparewatt.accounts.sealer import Sealer, derive_key
from sparewatt.core.errors import StartupError
from sparewatt.core.ids import AccountId
from sparewatt.core.rng import Rng
from sparewatt.protocol.signing import SigningKey
from sparewatt.store.accounts import AccountStore

SECRET_BYTES = 32
_BATCH = 100


class SealedChainKey(NamedTuple):
    address: str
    sealed: bytes


class Custody:
    """Makes, seals and opens chain keys."""

    def __init__(self, secret: bytes, *, rng: Rng) -> None:
        if len(secret) != SECRET_BYTES:
            raise ValueError(f"the network's secret has {SECRET_BYTES} bytes")
        self._sealer = Sealer(secret, purpose=b"sparewatt chain keys", rng=rng)
        self.fingerprint = derive_key(secret, b"sparewatt secret fingerprint")
        self._rng = rng

    def make(self, account_id: AccountId) -> SealedChainKey:
        key = SigningKey.generate(rng=self._rng)
        return SealedChainKey(key.address, self._sealer.seal(bytes.fromhex(key.secret_hex()), bound_to=account_id))

    def open(self, account_id: AccountId, sealed: bytes) -> SigningKey:
        """Raises ValueError if it was sealed for another account, under another secret, or changed since."""
        return SigningKey(self._sealer.open(sealed, bound_to=account_id))


def read_secret(text: str) -> bytes:
    """The network's secret as an operator writes it. Raises StartupError, which does not repeat it."""
    try:
        secret = bytes.fromhex(text.strip())
    except ValueError:
        secret = b""
    if len(secret) != SECRET_BYTES:
        raise StartupError("SPAREWATT_SECRET is 64 hex digits. Make one with 'openssl rand -hex 32'.")
    return secret


def read_secret_file(path: Path) -> bytes:
    """The network's secret as a gateway keeps it. Raises StartupError or OSError."""
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise StartupError(f"Others may read {path}. Run 'chmod 600 {path}'.")
    try:
        secret = bytes.fromhex(path.read_text().strip())
    except ValueError:
        secret = b""
    if len(secret) != SECRET_BYTES:
        raise StartupError(f"{path} is damaged. Restore it from a backup: the accounts' chain keys need it.")
    return secret


async def check_secret(people: AccountStore, custody: Custody) -> None:
    """Refuse to work beside chain keys that this secret cannot open. Raises StartupError."""
    if await people.secret_fingerprint(ours=custody.fingerprint) != custody.fingerprint:
        raise StartupError(
            "This gateway has another secret than the network it belongs to, and could not open its accounts' chain "
            "keys. Copy the file 'secret' from the data directory of the first gateway, or set SPAREWATT_SECRET."
        )


async def add_missing_chain_keys(people: AccountStore, custody: Custody) -> int:
    """Give a chain key to accounts that were made where the secret was not at hand. Returns how many."""
    filled = 0
    while account_ids := await people.accounts_without_chain_key(limit=_BATCH):
        for account_id in account_ids:
            made = custody.make(account_id)
            await people.set_chain_key(account_id, address=made.address, sealed=made.sealed)
        filled += len(account_ids)
    return filled
