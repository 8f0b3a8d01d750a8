"""What the commands `sparewatt chain deploy | fund | sync` do, apart from printing."""

from __future__ import annotations

import re
from pathlib import Path

from sparewatt.chain.client import ChainClient
from sparewatt.chain.confirmation import send_and_wait
from sparewatt.chain.contracts import (
    Contracts,
    DeploymentRecord,
    read_plan,
    read_record,
    shipped_artifacts,
    shipped_plan,
)
from sparewatt.chain.deployment import Deployment
from sparewatt.chain.follower import ChainFollower
from sparewatt.chain.model import hex_of
from sparewatt.chain.signer import DEPLOYER_KEY, OPERATOR_KEY, TransactionSigner, load_or_make_key
from sparewatt.core.clock import SystemClock
from sparewatt.core.errors import ChainReverted, ContractsMissing, InvalidField
from sparewatt.core.money import Nano, parse_usd
from sparewatt.core.rng import SystemRng
from sparewatt.machine.data_dir import make_private_dir
from sparewatt.protocol.signing import SigningKey
from sparewatt.store.database import Database

TOKEN = "token"  # noqa: S105 (a contract's name)
NANO_PER_UNIT = 1_000
"""The token has six decimals, the ledger nine."""


async def deploy(client: ChainClient, folder: Path, *, plan: Path | None = None) -> DeploymentRecord:
    make_private_dir(folder)
    rng = SystemRng()
    deployment = Deployment(
        client,
        folder,
        plan=read_plan(plan) if plan else shipped_plan(),
        artifacts=shipped_artifacts(),
        deployer=load_or_make_key(folder / DEPLOYER_KEY, rng=rng),
        operator=load_or_make_key(folder / OPERATOR_KEY, rng=rng).address,
        clock=SystemClock(),
    )
    return await deployment.ensure()


async def fund(client: ChainClient, folder: Path, *, address: str, amount_usd: str) -> tuple[str, int]:
    """Have the test token's faucet give; returns the transaction and how many of the token's units.

    A key that is made for this one transaction asks for it: on a development chain gas costs nothing, and the
    operator's nonces are the outbox's alone.
    """
    if not re.fullmatch(r"0x[0-9a-fA-F]{40}", address):
        raise InvalidField(f"{address[:60]!r} is not an address: 0x and 40 hex digits.")
    units = _units(parse_usd(amount_usd))
    call = _contracts(folder)[TOKEN].encode_call("faucet", address, units)
    key = SigningKey.generate(rng=SystemRng())
    sender, identity = key.address, await client.identity()
    gas_limit, fees = await client.gas_limit(call, sender=sender), await client.fees()
    signed = TransactionSigner([key]).sign(
        call, sender=sender, nonce=0, chain_id=identity.chain_id, gas_limit=gas_limit, fees=fees
    )
    receipt = await send_and_wait(client, signed, clock=SystemClock())
    if not receipt.succeeded:
        raise ChainReverted("the faucet gave nothing")
    return hex_of(receipt.tx_hash), units


async def sync(
    client: ChainClient, folder: Path, dsn: str, *, rebuild: bool, another_chain: bool = False
) -> tuple[int, int]:
    """Bring the index up to the head; returns its block and how many events it holds."""
    record = _record(folder)
    database = await Database.connect(dsn)
    try:
        contracts = Contracts(shipped_artifacts(), {name: at.address for name, at in record.contracts.items()})
        follower = ChainFollower(client, database.chain, contracts, start_block=record.start_block)
        await follower.begin(rebuild=rebuild, another_chain=another_chain)
        return await follower.catch_up(), await database.chain.count_events()
    finally:
        await database.close()


def _units(amount: Nano) -> int:
    if amount <= 0 or amount % NANO_PER_UNIT:
        raise InvalidField("The amount must be more than nothing, with at most six decimals.")
    return amount // NANO_PER_UNIT


def _record(folder: Path) -> DeploymentRecord:
    record = read_record(folder)
    if record is None:
        raise ContractsMissing(
            f"There is no record of contracts in {folder}. 'sparewatt chain deploy' makes one; --data says where it is."
        )
    return record


def _contracts(folder: Path) -> Contracts:
    return Contracts(shipped_artifacts(), {name: at.address for name, at in _record(folder).contracts.items()})
