"""Contracts by their ABI, against values computed by others (Ethereum's own test vectors and well-known selectors)."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from sparewatt.chain.contracts import shipped_artifacts
from sparewatt.core.errors import ContractsMissing
from sparewatt.evm.abi_codec import abi_type
from sparewatt.evm.contract_abi import AbiEntry, AbiParam, Artifact, Contract, Contracts, shipped_abis
from sparewatt.evm.model import RawLog, bytes_of, hex_of

ADDRESS, OTHER = "0x" + "11" * 20, "0x" + "22" * 20
WORD = 32


def param(kind: str, name: str = "", *components: AbiParam, indexed: bool = False) -> AbiParam:
    return AbiParam(type=kind, name=name, components=components, indexed=indexed)


TRANSFER = AbiEntry(
    type="event",
    name="Transfer",
    inputs=(
        param("address", "sender", indexed=True),
        param("address", "receiver", indexed=True),
        param("uint256", "amount"),
    ),
)
ABI = (
    AbiEntry(type="function", name="transfer", inputs=(param("address"), param("uint256")), outputs=(param("bool"),)),
    AbiEntry(type="function", name="claim", inputs=(param("tuple", "entry", param("address"), param("uint256")),)),
    AbiEntry(type="function", name="claim", inputs=(param("tuple[]", "e", param("address")), param("bytes32[]"))),
    TRANSFER,
    AbiEntry(type="event", name="Said", inputs=(param("string", "topic", indexed=True), param("bytes", "what"))),
)
TOKEN = Contract("token", ADDRESS, ABI)


def padded(address: str) -> bytes:
    return bytes(12) + bytes_of(address)


def a_log(
    entry: AbiEntry, *topics: bytes, data: bytes = b"", tx_hash: bytes = b"\x0a" * WORD, index: int = 0
) -> RawLog:
    return RawLog(7, index, b"\x0b" * WORD, tx_hash, ADDRESS, (entry.signature_hash(), *topics), data)


def test_a_call_is_the_selector_and_its_arguments() -> None:
    call = TOKEN.encode_call("transfer", OTHER, 1000)
    assert call.data == bytes.fromhex("a9059cbb") + padded(OTHER) + (1000).to_bytes(WORD, "big")
    assert call.to == ADDRESS


def test_a_tuple_is_spelt_out_in_the_signature() -> None:
    assert [param.canonical_type() for param in ABI[1].inputs] == ["(address,uint256)"]
    assert [param.canonical_type() for param in ABI[2].inputs] == ["(address)[]", "bytes32[]"]


def test_of_two_functions_of_a_name_the_number_of_arguments_chooses() -> None:
    one, two = TOKEN.encode_call("claim", (OTHER, 5)), TOKEN.encode_call("claim", [(OTHER,)], [])
    assert one.data[:4] != two.data[:4]


@pytest.mark.parametrize("args", [(OTHER,), (OTHER, -1), (OTHER, 1 << 256), ("0x12", 1), (OTHER, "1")])
def test_arguments_that_do_not_fit_are_a_mistake(args: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match="transfer"):
        TOKEN.encode_call("transfer", *args)


def test_an_answer_is_decoded() -> None:
    assert TOKEN.decode_result("transfer", (1).to_bytes(WORD, "big"), n_args=2) is True


def test_a_log_becomes_an_event_in_words() -> None:
    log = a_log(TRANSFER, padded(ADDRESS), padded(OTHER), data=((1 << 255) + 1).to_bytes(WORD, "big"))
    event = TOKEN.decode_log(log, ordinal=0)
    assert event is not None
    assert (event.contract, event.event) == ("token", "Transfer")
    assert event.args == {"sender": ADDRESS, "receiver": OTHER, "amount": (1 << 255) + 1}


def test_an_indexed_text_is_only_there_as_its_hash() -> None:
    data = (WORD).to_bytes(WORD, "big") + (2).to_bytes(WORD, "big") + b"hi" + bytes(30)
    event = TOKEN.decode_log(a_log(ABI[4], b"\x0c" * WORD, data=data), ordinal=0)
    assert event is not None
    assert event.args == {"topic": hex_of(b"\x0c" * WORD), "what": "0x6869"}


@pytest.mark.parametrize(
    "log",
    [
        RawLog(7, 0, b"", b"", ADDRESS, (), b""),
        RawLog(7, 0, b"", b"", ADDRESS, (b"\x0d" * WORD,), b""),
        a_log(TRANSFER, padded(ADDRESS), padded(OTHER), data=b"short"),
    ],
    ids=["no topic", "a stranger's", "cut off"],
)
def test_a_log_that_no_abi_knows_is_no_event(log: RawLog) -> None:
    assert TOKEN.decode_log(log, ordinal=0) is None


def test_events_are_numbered_within_their_transaction_whatever_the_order_they_came_in() -> None:
    contracts = Contracts({"token": Artifact(abi=ABI)}, {"token": ADDRESS.upper().replace("0X", "0x")})
    topics, data = (padded(ADDRESS), padded(OTHER)), bytes(WORD)
    logs = [
        a_log(TRANSFER, *topics, data=data, index=3),
        a_log(TRANSFER, *topics, data=data, index=1),
        a_log(TRANSFER, *topics, data=data, index=2, tx_hash=b"\x0e" * WORD),
    ]
    assert [(event.log_index, event.ordinal) for event in contracts.decode_logs(logs)] == [(1, 0), (2, 0), (3, 1)]


def test_logs_of_a_foreign_contract_do_not_change_the_numbers_of_ours() -> None:
    """How many of them are fetched depends on whose addresses we hold."""
    artifacts, addresses = {name: Artifact(abi=ABI) for name in ("ours", "token")}, {"ours": OTHER, "token": ADDRESS}
    contracts = Contracts(artifacts, addresses, foreign={"token"})
    topics, data = (padded(ADDRESS), padded(OTHER)), bytes(WORD)
    foreign = [a_log(TRANSFER, *topics, data=data, index=index) for index in (1, 2)]
    ours = [replace(a_log(TRANSFER, *topics, data=data, index=index), address=OTHER) for index in (3, 4)]
    alone = [(event.contract, event.ordinal) for event in contracts.decode_logs(ours)]
    assert alone == [("ours", 0), ("ours", 1)]
    together = [(event.contract, event.ordinal) for event in contracts.decode_logs([*foreign, *ours])]
    assert together == [("token", 0), ("token", 1), *alone]


def test_a_contract_that_is_not_deployed_is_named_with_the_command_that_deploys_it() -> None:
    with pytest.raises(ContractsMissing, match=r"'settlement' is not deployed .* chain deploy"):
        Contracts({}, {})["settlement"]


def test_a_log_with_too_few_or_too_many_topics_is_no_event() -> None:
    data = bytes(WORD)
    assert TOKEN.decode_log(a_log(TRANSFER, padded(ADDRESS), data=data), ordinal=0) is None
    assert TOKEN.decode_log(a_log(TRANSFER, *[padded(ADDRESS)] * 3, data=data), ordinal=0) is None


def test_the_shipped_abis_are_those_of_the_artifacts() -> None:
    """Every function and event, and no bytecode: a reader of the chain deploys nothing."""
    artifacts, readers = shipped_artifacts(), shipped_abis()
    assert set(readers) == set(artifacts)
    for name, artifact in artifacts.items():
        assert [entry for entry in artifact.abi if entry.type != "constructor"] == list(readers[name].abi)
        assert readers[name].bytecode == "0x"


def test_every_shipped_event_and_function_has_types_that_the_codec_knows() -> None:
    for artifact in shipped_abis().values():
        for entry in artifact.abi:
            for param in (*entry.inputs, *entry.outputs):
                assert abi_type(param.canonical_type()) is not None


def test_reading_the_chain_imports_nothing_of_web3() -> None:
    """A node and a validator install none of it."""
    script = (
        "import sys, pkgutil, importlib, sparewatt.evm\n"
        "[importlib.import_module(f'sparewatt.evm.{m.name}') for m in pkgutil.iter_modules(sparewatt.evm.__path__)]\n"
        "import sparewatt.market.chain_view\n"
        "print([m for m in sys.modules if m.split('.')[0] in "
        "{'web3', 'eth_abi', 'eth_account', 'eth_typing', 'rlp', 'asyncpg'} or m.startswith('sparewatt.chain')])"
    )
    path = os.pathsep.join(sys.path)
    found = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert found.stdout.strip() == "[]"
