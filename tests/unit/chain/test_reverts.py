"""Reverts of contracts and refusals of nodes become leaves of the error tree."""

from __future__ import annotations

from json import JSONDecodeError

import aiohttp
import pytest
from eth_abi.abi import encode
from web3.exceptions import BlockNotFound, ContractLogicError, Web3RPCError

from sparewatt.chain.reverts import translate_chain_errors
from sparewatt.core.errors import ChainRefused, ChainReverted, ChainUnavailable

ERROR = bytes.fromhex("08c379a0")


@pytest.mark.parametrize("wrap", [lambda data: data, lambda data: {"data": data}])
def test_a_revert_carries_the_contracts_own_reason(wrap: object) -> None:
    data = "0x" + (ERROR + encode(["string"], ["TOO_LATE"])).hex()
    with pytest.raises(ChainReverted) as caught, translate_chain_errors():
        raise ContractLogicError("execution reverted", data=wrap(data))  # type: ignore[operator]
    assert caught.value.reason == "TOO_LATE"


def test_a_nodes_refusal_is_reported_on_one_short_line() -> None:
    reply = {"error": {"code": -32000, "message": "line one\nline two " + "x" * 1000}}
    with pytest.raises(ChainRefused, match="line one line two") as caught, translate_chain_errors():
        raise Web3RPCError("boom", rpc_response=reply)  # type: ignore[arg-type]
    assert len(caught.value.message) < 300


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError(),
        ConnectionRefusedError(),
        aiohttp.ClientConnectionError(),
        JSONDecodeError("a proxy's page", "<html>", 0),
    ],
)
def test_a_chain_that_is_away_is_unavailable(error: Exception) -> None:
    with pytest.raises(ChainUnavailable), translate_chain_errors():
        raise error


def test_a_block_that_is_not_there_is_an_answer() -> None:
    with pytest.raises(BlockNotFound), translate_chain_errors():
        raise BlockNotFound("no")
