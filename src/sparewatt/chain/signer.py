"""Signs transactions (EIP-1559) with the keys of this process. Keys leave it only as signatures."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import rlp
from eth_account import Account

from sparewatt.chain.model import ContractCall, GasFees, bytes_of
from sparewatt.core.errors import StartupError
from sparewatt.core.rng import Rng
from sparewatt.machine.data_dir import write_private
from sparewatt.protocol.contracts.chain_events import SignedTransaction
from sparewatt.protocol.signing import SigningKey

DEPLOYER_KEY, OPERATOR_KEY, GUARDIAN_KEY = "deployer.key", "operator.key", "guardian.key"


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
        transaction = {
            "type": 2,
            "chainId": chain_id,
            "nonce": nonce,
            "to": bytes_of(call.to),
            "data": call.data,
            "value": 0,
            "gas": gas_limit,
            "maxFeePerGas": fees.max_wei,
            "maxPriorityFeePerGas": fees.tip_wei,
        }
        signed = Account.sign_transaction(transaction, self._by_address[sender].secret_hex())
        return SignedTransaction(bytes(signed.hash), bytes(signed.raw_transaction), fees.max_wei, fees.tip_wei)


def signed_gas_limit(raw: bytes) -> int:
    """The gas limit in a signed transaction of type 2: the fifth field of its RLP list."""
    return int.from_bytes(rlp.decode(raw[1:])[4], "big")


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
