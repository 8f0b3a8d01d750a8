"""Compares the candidates of a match, and the keys that their secrets are sealed to, with the contracts on a chain."""

from __future__ import annotations

import asyncio
from typing import Any

from sparewatt.core.clock import SystemClock
from sparewatt.core.errors import ChainError
from sparewatt.evm.abi_codec import AbiError
from sparewatt.evm.client import EvmClient
from sparewatt.evm.contract_abi import Contract, shipped_abis
from sparewatt.evm.json_rpc import HttpTransport, RpcClient
from sparewatt.market.secret_recipients import ProvenMatch
from sparewatt.protocol.api.lease_changes import LeaseSecrets

CHECK_S = 15.0


class ChainDisagrees(Exception):
    """The chain says something else than gateway and validators, or nothing in time. Its text says what."""


async def check_on_chain(url: str, order_id: str, wanted: LeaseSecrets, match: ProvenMatch) -> None:
    """Raises ChainDisagrees. The order's contract is the gateway's word; all others are read from it."""
    transport = HttpTransport(url)
    try:
        async with asyncio.timeout(CHECK_S):
            await _check(EvmClient(RpcClient(transport, SystemClock())), bytes.fromhex(order_id[2:]), wanted, match)
    except TimeoutError:
        raise ChainDisagrees(f"the chain at {url} did not answer in time") from None
    except (ChainError, AbiError, ValueError) as error:
        raise ChainDisagrees(f"the chain at {url} could not be read: {error}") from None
    finally:
        await transport.close()


async def _check(client: EvmClient, order_id: bytes, wanted: LeaseSecrets, match: ProvenMatch) -> None:
    chain_id = (await client.identity()).chain_id
    if chain_id != wanted.chain_id:
        raise ChainDisagrees(f"the chain has the id {chain_id}, the gateway's {wanted.chain_id}")
    orders = Contract("deployment_order", wanted.deployment_order, shipped_abis()["deployment_order"].abi)
    opened_at = int(await _call(client, orders, "opened_at", order_id, wanted.attempt))
    if not opened_at:
        raise ChainDisagrees("the chain knows no such auction")
    tasks = Contract("task_manager", str(await _call(client, orders, "tasks")), shipped_abis()["task_manager"].abi)
    if not match.is_recorded_as(await _call(client, tasks, "record_of", order_id, wanted.attempt)):
        raise ChainDisagrees("the match on the chain has other candidates")
    address = str(await _call(client, orders, "registry"))
    registry = Contract("provider_registry", address, shipped_abis()["provider_registry"].abi)
    for each in match.recipients:
        if not await _call(client, registry, "was_node_key", each.provider, each.node_key, opened_at):
            raise ChainDisagrees(f"{each.node_key} was not the registered node key of {each.provider}")


async def _call(client: EvmClient, contract: Contract, function: str, *args: object) -> Any:
    data = await client.call(contract.encode_call(function, *args))
    return contract.decode_result(function, data, n_args=len(args))
