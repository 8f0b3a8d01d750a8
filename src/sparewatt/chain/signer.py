"""Signs transactions (EIP-1559) with the keys of this process. Keys leave it only as signatures."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from sparewatt.core.errors import StartupError
from sparewatt.core.rng import Rng
from sparewatt.evm.model import ContractCall, GasFees
from sparewatt.evm.transactions import sign_transaction
from sparewatt.machine.data_dir import write_private
from sparewatt.protocol.contracts.chain_events import SignedTransaction
from sparewatt.protocol.signing import SigningKey

DEPLOYER_KEY, OPERATOR_KEY, GUARDIAN_KEY = "deployer.key", "operator.key", "guardian.key"


def sender_key_name(number: int) -> str:
    """The file of a key that relays requests, counted from 1."""
    return f"sender-{number}.key"


class TransactionSigner:
    def __init__(self, keys: Iterable[SigningKey]) -> None:
        self._by_address: dict[str, SigningKey] = {key.address: key for key in keys}

    @property
    def addresses(self) -> list[str]:
        return sorted(self._by_address)

    def sign(
        self, call: ContractCall, *, sender: str, nonce: int, chain_id: int, gas_limit: int, fees: GasFees
    ) -> SignedTransaction:
        """An empty `call.to` creates a contract out of the data."""
        key = self._by_address[sender]
        return sign_transaction(call, key, nonce=nonce, chain_id=chain_id, gas_limit=gas_limit, fees=fees)


def load_or_make_key(path: Path, *, rng: Rng) -> SigningKey:
    """The key in a private file; the first time, a new one. Raises StartupError."""
    if not path.exists():
        write_private(path, SigningKey.generate(rng=rng).secret_hex().encode())
    if os.name == "posix" and path.stat().st_mode & 0o077:
        raise StartupError(f"A key can be read by others. Run: chmod 600 {path}")
    try:
        return SigningKey.read(path)
    except OSError as error:
        raise StartupError(f"Cannot read the key in {path}: {error.strerror}.") from None
    except ValueError:
        raise StartupError(f"{path} holds no key: 64 hex digits on one line.") from None
