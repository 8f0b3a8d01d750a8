"""What the commands `sparewatt chain deploy | fund | sync` do, apart from printing."""

from __future__ import annotations

import re
from pathlib import Path

from sparewatt.chain.client import ChainClient
from sparewatt.chain.contracts import DeploymentRecord, get_record, read_plan, shipped_contracts
from sparewatt.chain.deployment import send_directly, shipped_deployment
from sparewatt.chain.follower import ChainFollower
from sparewatt.chain.money.settlement_contract import TOKEN
from sparewatt.core.clock import SystemClock
from sparewatt.core.errors import ChainReverted, InvalidField
from sparewatt.core.money import parse_usd
from sparewatt.core.rng import SystemRng
from sparewatt.evm.model import hex_of
from sparewatt.ledger.payouts import NANO_PER_MICRO
from sparewatt.machine.data_dir import make_private_dir
from sparewatt.protocol.signing import SigningKey
from sparewatt.store.database import Database


async def deploy(client: ChainClient, folder: Path, *, plan: Path | None = None) -> DeploymentRecord:
    make_private_dir(folder)
    steps = read_plan(plan) if plan else None
    return await shipped_deployment(client, folder, plan=steps, clock=SystemClock(), rng=SystemRng()).ensure()


async def fund(client: ChainClient, folder: Path, *, address: str, amount_usd: str) -> tuple[str, int]:
    """Call the test token's faucet. Returns the transaction, and the amount in the token's units (micro-USD).

    A key that is made for this one transaction signs it: on a development chain gas costs nothing, and the operator's
    nonces belong to the outbox alone.
    """
    if not re.fullmatch(r"0x[0-9a-fA-F]{40}", address):
        raise InvalidField(f"{address[:60]!r} is not an address: 0x and 40 hex digits.")
    amount = parse_usd(amount_usd)
    if amount <= 0 or amount % NANO_PER_MICRO:
        raise InvalidField("The amount must be more than nothing, with at most six decimals.")
    units = amount // NANO_PER_MICRO
    call = shipped_contracts(get_record(folder))[TOKEN].encode_call("faucet", address, units)
    key, chain_id = SigningKey.generate(rng=SystemRng()), (await client.identity()).chain_id
    receipt = await send_directly(client, call, key, nonce=0, chain_id=chain_id, clock=SystemClock())
    if not receipt.succeeded:
        raise ChainReverted("the faucet gave nothing")
    return hex_of(receipt.tx_hash), units


async def sync(
    client: ChainClient, folder: Path, dsn: str, *, rebuild: bool, another_chain: bool = False
) -> tuple[int, int]:
    """Bring the index up to the head. Returns its last block and its number of events."""
    record = get_record(folder)
    database = await Database.connect(dsn)
    try:
        contracts = shipped_contracts(record)
        follower = ChainFollower(client, database.chain, contracts, start_block=record.start_block)
        await follower.begin(rebuild=rebuild, another_chain=another_chain)
        return await follower.catch_up(), await database.chain.count_events()
    finally:
        await database.close()
