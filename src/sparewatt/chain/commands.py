"""What the commands `sparewatt chain deploy | fund | sync` do, apart from printing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from sparewatt.chain.client import ChainClient
from sparewatt.chain.contracts import (
    LOCAL_PLAN,
    PLAN_FILES,
    PUBLIC_PLAN,
    DeploymentRecord,
    DeploymentStep,
    get_current_record,
    read_plan,
    shipped_artifacts,
    shipped_contracts,
    shipped_plan,
)
from sparewatt.chain.deployment import send_directly, shipped_deployment
from sparewatt.chain.follower import ChainFollower
from sparewatt.chain.money.settlement_contract import TOKEN, call_view, followed_contracts
from sparewatt.core.clock import SystemClock
from sparewatt.core.errors import ChainRefused, ChainReverted, InvalidField
from sparewatt.core.money import parse_usd
from sparewatt.core.rng import SystemRng
from sparewatt.evm.contract_abi import Contract
from sparewatt.evm.model import hex_of
from sparewatt.ledger.payouts import NANO_PER_MICRO
from sparewatt.machine.data_dir import make_private_dir
from sparewatt.protocol.signing import SigningKey
from sparewatt.store.database import Database

TOKEN_DECIMALS = 6
"""Prices and stakes are in millionths of a dollar: another token would make all of them wrong."""
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}")


async def deploy(
    client: ChainClient, folder: Path, *, plan: str = LOCAL_PLAN, token: str | None = None, guardian: str | None = None
) -> DeploymentRecord:
    """`plan` is the name of one that ships, or the path of the operator's own."""
    steps = shipped_plan(plan) if plan in PLAN_FILES else read_plan(Path(plan))
    for address in filter(None, (token, guardian)):
        require_address(address)
    await _require_token(client, steps, token)
    make_private_dir(folder)
    deployment = shipped_deployment(
        client, folder, plan=steps, token=token, guardian=guardian, clock=SystemClock(), rng=SystemRng()
    )
    return await deployment.ensure()


async def _require_token(client: ChainClient, steps: Sequence[DeploymentStep], token: str | None) -> None:
    """A plan makes its own token, or the operator names one of six decimals."""
    makes_one = any(step.create == TOKEN for step in steps)
    if token is None:
        if steps and not makes_one:
            raise InvalidField("This plan makes no token. Name the address of yours: --token 0x…")
        return
    if makes_one:
        raise InvalidField(f"This plan makes a token of its own. Take the plan {PUBLIC_PLAN!r}, or leave --token out.")
    contract = Contract(TOKEN, token.lower(), shipped_artifacts()[TOKEN].abi)
    try:
        decimals = await call_view(client, contract, "decimals")
    except (ChainRefused, ChainReverted):
        raise InvalidField(f"At {token} there is no ERC-20 on this chain.") from None
    if decimals != TOKEN_DECIMALS:
        raise InvalidField(f"The token at {token} has {decimals} decimals; the contracts count with {TOKEN_DECIMALS}.")


def require_address(address: str) -> None:
    if not _ADDRESS.fullmatch(address):
        raise InvalidField(f"{address[:60]!r} is not an address: 0x and 40 hex digits.")


async def fund(client: ChainClient, folder: Path, *, address: str, amount_usd: str) -> tuple[str, int]:
    """Call the test token's faucet. Returns the transaction, and the amount in the token's units (micro-USD).

    A key that is made for this one transaction signs it: on a development chain gas costs nothing, and the operator's
    nonces belong to the outbox alone.
    """
    require_address(address)
    amount = parse_usd(amount_usd)
    if amount <= 0 or amount % NANO_PER_MICRO:
        raise InvalidField("The amount must be more than nothing, with at most six decimals.")
    units = amount // NANO_PER_MICRO
    call = shipped_contracts(get_current_record(folder))[TOKEN].encode_call("faucet", address, units)
    key, chain_id = SigningKey.generate(rng=SystemRng()), (await client.identity()).chain_id
    receipt = await send_directly(client, call, key, nonce=0, chain_id=chain_id, clock=SystemClock())
    if not receipt.succeeded:
        raise ChainReverted("the faucet gave nothing")
    return hex_of(receipt.tx_hash), units


async def sync(
    client: ChainClient, folder: Path, dsn: str, *, rebuild: bool, another_chain: bool = False
) -> tuple[int, int]:
    """Bring the index up to the head. Returns its last block and its number of events."""
    record = get_current_record(folder)
    database = await Database.connect(dsn)
    try:
        follower = ChainFollower(
            client,
            database.chain,
            await followed_contracts(client, record),
            start_block=record.start_block,
            held_addresses=database.pockets.held_addresses,
        )
        await follower.begin(rebuild=rebuild, another_chain=another_chain)
        return await follower.catch_up(), await database.chain.count_events()
    finally:
        await database.close()
