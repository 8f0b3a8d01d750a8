from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparewatt.chain.contracts import (
    RECORD_FILE,
    DeployedContract,
    DeploymentRecord,
    get_current_record,
    made_of,
    outdated_contracts,
    shipped_artifacts,
)
from sparewatt.core.errors import ContractsMissing, ContractsOutdated

ARTIFACTS = shipped_artifacts()


def record_of(*names: str, aged: str | None = None) -> DeploymentRecord:
    contracts = {
        name: DeployedContract("0x" + "1" * 40, "0x", "0x00" if name == aged else made_of(ARTIFACTS[name]))
        for name in names
    }
    return DeploymentRecord(31337, "0x" + "0" * 64, 1, contracts)


def test_contracts_of_this_release_are_current() -> None:
    assert outdated_contracts(record_of(*ARTIFACTS), ARTIFACTS, wanted=ARTIFACTS) == []


def test_a_changed_contract_is_named() -> None:
    assert outdated_contracts(record_of("token", "escrow", aged="escrow"), ARTIFACTS) == ["escrow"]


def test_a_contract_that_this_release_does_not_have_is_named() -> None:
    gone = {name: artifact for name, artifact in ARTIFACTS.items() if name != "escrow"}
    assert outdated_contracts(record_of("token", "escrow"), gone) == ["escrow"]


def test_a_contract_that_this_release_adds_is_named_where_its_plan_is_used() -> None:
    record = record_of("token", "settlement")
    assert outdated_contracts(record, ARTIFACTS) == []
    assert outdated_contracts(record, ARTIFACTS, wanted=["token", "settlement", "escrow"]) == ["escrow"]


def test_commands_refuse_contracts_of_another_release(tmp_path: Path) -> None:
    with pytest.raises(ContractsMissing, match="no record"):
        get_current_record(tmp_path)
    contract = {"address": "0x" + "1" * 40, "code_hash": "0x", "made_of": "0x00"}
    record = {"chain_id": 1, "genesis_hash": "0x", "start_block": 1, "contracts": {"token": contract}}
    (tmp_path / RECORD_FILE).write_text(json.dumps(record))
    with pytest.raises(ContractsOutdated, match=r"another release \(token\).*chain deploy"):
        get_current_record(tmp_path)
