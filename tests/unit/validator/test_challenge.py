"""The contract's answer to a proof decides what is said of it. The whole command is tested with a real chain."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from sparewatt.core.errors import ChainReverted, ChainUnavailable
from sparewatt.evm.client import EvmClient
from sparewatt.evm.contract_abi import Contracts, shipped_abis
from sparewatt.evm.model import ChainIdentity, ContractCall
from sparewatt.market.faults import ProvenFault, find_faults
from sparewatt.market.match.evidence_pool import EvidencePool
from sparewatt.validator.challenge import FaultProver, ProofResult, registered_urls
from sparewatt.validator.deployment import MarketDeployment
from tests.market_network.by_hand import USD, HandMatch
from tests.unit.validator.host_scene import a_state

CONTRACTS = Contracts(shipped_abis(), {"dispute": "0x" + "d1" * 20, "dispute_book": "0x" + "d2" * 20})


@dataclass
class ChainStub:
    answer: Exception | None = None
    called: list[ContractCall] = field(default_factory=list)

    async def call(self, call: ContractCall, *, sender: str) -> bytes:
        assert sender
        self.called.append(call)
        if self.answer is not None:
            raise self.answer
        return b""


def a_fault() -> ProvenFault:
    match = HandMatch.of({0: USD, 1: USD})
    pool = EvidencePool(match.cast.context).add_all([match.commit_list(0), match.commit_list(0, [1])])
    (fault,) = find_faults(pool, indices=dict.fromkeys(match.cast.context.weights, 0))
    return fault


def a_prover(chain: ChainStub) -> FaultProver:
    context = HandMatch.of({}).cast.context
    deployment = MarketDeployment(ChainIdentity(31_337, bytes(32)), CONTRACTS, 0, context.domain)
    return FaultProver(cast("EvmClient", chain), deployment, None)


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (None, ProofResult.PROVABLE),
        (ChainReverted("ALREADY_PUNISHED"), ProofResult.ALREADY_PUNISHED),
        (ChainReverted("TOO_LATE"), ProofResult.REFUSED),
    ],
)
async def test_without_a_key_the_contract_is_asked_and_nothing_is_sent(answer: Any, result: ProofResult) -> None:
    chain = ChainStub(answer)
    proof = await a_prover(chain).prove(a_fault())
    assert (proof.result, proof.reason, proof.tx_hash) == (result, getattr(answer, "reason", ""), "")
    assert len(chain.called) == 1


async def test_a_chain_that_does_not_answer_is_no_answer() -> None:
    with pytest.raises(ChainUnavailable):
        await a_prover(ChainStub(ChainUnavailable("away"))).prove(a_fault())


def test_private_addresses_of_strangers_are_not_dialled() -> None:
    state = a_state()
    urls = ["http://127.0.0.1:1", "https://10.0.0.1", "https://v1.example", "ftp://v2.example"]
    for validator, url in zip(list(state.validators.values()), urls, strict=True):
        object.__setattr__(validator, "url", url)
    assert registered_urls(state, allows_private=False) == ["https://v1.example"]
    assert registered_urls(state, allows_private=True) == urls[:3]
