"""One of four validators is faulty: the match happens all the same, and whoever lied is proven guilty and pays."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sparewatt.market.chain_records import OrderRecord
from sparewatt.market.faults import MarketFault
from sparewatt.validator.challenge import MatchChallenge, ProofResult, challenge
from sparewatt.validator.signed_file import SIGNED_FILE, read_signatures, slot_of
from tests.integration.chain.market_scene import ALICE, BOB, key
from tests.integration.validator.faulty_validator import Fault
from tests.integration.validator.test_matches import bid, command, winners
from tests.integration.validator.validator_network import ValidatorNetwork, ValidatorProcess, until
from tests.order_terms import order_terms

pytestmark = pytest.mark.asyncio(loop_scope="session")
TERMS = order_terms(latency_value=0, commit_ms=3_000, reveal_ms=2_000)
"""Windows that close early: a busy machine must not make a bid late."""
LIES = {
    Fault.WRONG_WINNER: {MarketFault.RANK},
    Fault.MISSING_BID: {MarketFault.OMISSION},
    Fault.WRONG_PRICE: {MarketFault.OMISSION},
    Fault.WRONG_SCORE: {MarketFault.LEAF},
    Fault.EQUIVOCATING: {MarketFault.DOUBLE_SIGN},
}
ORDERS_MAX = 8
DEATH_S = 2.0
DEATHS = [each for each in Fault if each.name.startswith("DIES")]
CHALLENGER = key(901)
JOINS = ("--join-stake", "1000")
_lied_about: dict[Fault, str] = {}
"""The orders of the tests that went before."""


@pytest.fixture
def culprit(faulty_network: ValidatorNetwork) -> Iterator[ValidatorProcess]:
    """The faulty validator, honest again after the test."""
    process = faulty_network.validators[-1]
    yield process
    process.fault_file.unlink(missing_ok=True)


async def decided_with(network: ValidatorNetwork, culprit: ValidatorProcess, fault: Fault | None) -> OrderRecord:
    """An order that the culprit leads, matched with whom it has to be."""
    number = network.validators.index(culprit)
    vote_key = (await network.status(number)).vote_key
    if fault is not None:
        culprit.fault_file.write_text(fault.value)
    order_id, _ = await network.order_led_by(vote_key, terms=TERMS)
    await bid(network, order_id)
    await network.settled(order_id)
    order = network.market.view.latest.orders[order_id]
    assert winners(order) == [BOB.address, ALICE.address]
    return order


async def matched_with(network: ValidatorNetwork, culprit: ValidatorProcess, fault: Fault | None) -> OrderRecord:
    """As `decided_with`, and at most one round later than by honest validators."""
    order = await decided_with(network, culprit, fault)
    assert order.certificate is not None
    assert order.certificate.record.round <= 1
    return order


async def back(network: ValidatorNetwork, culprit: ValidatorProcess) -> None:
    """It runs again, follows the chain, and hears the others."""
    if culprit.process is None or culprit.process.returncode is not None:
        await culprit.start()
    await culprit.ready()
    number = network.validators.index(culprit)

    async def is_back() -> bool:
        status = await network.status(number)
        return not status.is_syncing and status.weight > 0

    await until(is_back, "the validator is back with its weight")


async def has_died(culprit: ValidatorProcess) -> bool:
    """It may die a moment after its match is decided."""
    assert culprit.process is not None
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(culprit.process.wait(), DEATH_S)
    return culprit.process.returncode is not None


async def stakes(network: ValidatorNetwork) -> dict[str, int]:
    """By vote key, as the chain says."""
    await network.market.follow()
    return {each.vote_key: each.stake_uusd for each in network.market.view.latest.validators.values()}


async def challenged(network: ValidatorNetwork, order_id: str, *, key_file: Path | None = None) -> MatchChallenge:
    """By a stranger who knows the chain and nothing else."""
    first = network.validators[0]
    return await challenge(
        order_id, attempt=None, sources=(), key=key_file, chain_url=first.chain_url, contracts=first.contracts
    )


async def challenged_by_command(network: ValidatorNetwork, order_id: str, key_file: Path) -> set[str]:
    """What became of each fault."""
    contracts, chain_url = str(network.validators[0].contracts), network.validators[0].chain_url
    words = ("--key", str(key_file), "--chain-url", chain_url, "--contracts", contracts, "--json")
    status, written = await command("challenge", order_id, *words)
    assert status == 0, written
    return {each["result"] for each in json.loads(written)["faults"]}


def assert_signed_once(process: ValidatorProcess) -> None:
    slots = [slot_of(stored.record) for stored in read_signatures(process.folder / "data" / SIGNED_FILE)]
    assert len(slots) == len(set(slots))


async def test_a_leader_that_is_down_is_passed_over(
    faulty_network: ValidatorNetwork, culprit: ValidatorProcess
) -> None:
    vote_key = (await faulty_network.status(faulty_network.validators.index(culprit))).vote_key
    await culprit.stop()
    order_id, _ = await faulty_network.order_led_by(vote_key, terms=TERMS)
    await bid(faulty_network, order_id)
    await faulty_network.settled(order_id)
    order = faulty_network.market.view.latest.orders[order_id]
    assert winners(order) == [BOB.address, ALICE.address]
    assert order.certificate is not None
    assert order.certificate.record.round == 1
    assert vote_key not in order.certificate.signers
    await back(faulty_network, culprit)


@pytest.mark.parametrize("fault", [Fault.SLOW, Fault.PARTITIONED], ids=lambda fault: fault.name)
async def test_a_leader_that_is_not_heard_in_time_is_passed_over(
    faulty_network: ValidatorNetwork, culprit: ValidatorProcess, fault: Fault
) -> None:
    order = await matched_with(faulty_network, culprit, fault)
    assert (await challenged(faulty_network, order.order_id)).proofs == (), "slowness is no fault"


@pytest.mark.parametrize("death", DEATHS, ids=lambda fault: fault.name)
async def test_a_leader_killed_with_minus_nine_delays_a_match_by_a_round_at_most(
    faulty_network: ValidatorNetwork, culprit: ValidatorProcess, death: Fault
) -> None:
    for _ in range(ORDERS_MAX):  # a leader that another overtook does not come to its last steps
        await matched_with(faulty_network, culprit, death)
        if await has_died(culprit):
            break
    assert culprit.process is not None
    assert culprit.process.returncode == -9, "it died at the step that was named"
    await back(faulty_network, culprit)
    assert_signed_once(culprit)


@pytest.mark.parametrize("lie", LIES, ids=lambda fault: fault.name)
async def test_a_lie_changes_nothing_and_anyone_can_prove_it(
    faulty_network: ValidatorNetwork, culprit: ValidatorProcess, lie: Fault
) -> None:
    order = await matched_with(faulty_network, culprit, lie)
    _lied_about[lie] = order.order_id
    liar = (await faulty_network.status(len(faulty_network.validators) - 1)).vote_key
    before = await stakes(faulty_network)
    proofs = (await challenged(faulty_network, order.order_id)).proofs
    assert {proof.fault.fault for proof in proofs} >= LIES[lie]
    assert {culprit for proof in proofs for culprit in proof.fault.culprits} == {liar}
    assert {proof.result for proof in proofs} == {ProofResult.PROVABLE}
    assert await stakes(faulty_network) == before, "nothing is sent without a key"


async def test_a_third_party_has_the_liar_slashed_and_nobody_else(
    faulty_network: ValidatorNetwork, tmp_path: Path
) -> None:
    liar = (await faulty_network.status(len(faulty_network.validators) - 1)).vote_key
    key_file = tmp_path / "challenger.key"
    key_file.write_text(CHALLENGER.secret_hex())
    first, *others = _lied_about.values()
    before = await stakes(faulty_network)
    assert await challenged_by_command(faulty_network, first, key_file) == {"punished"}
    for order_id in others:
        proofs = (await challenged(faulty_network, order_id, key_file=key_file)).proofs
        assert {proof.result for proof in proofs} == {ProofResult.PUNISHED}
    after = await stakes(faulty_network)
    assert after.pop(liar) < before[liar] // 2
    assert after.items() <= before.items(), "no other stake has changed"
    owed = await faulty_network.market.read("stake_registry", "owed", CHALLENGER.address)
    assert before[liar] // 20 <= owed <= before[liar] // 10, "a tenth of what was taken"
    assert await challenged_by_command(faulty_network, first, key_file) == {"already punished"}
    assert await faulty_network.market.read("stake_registry", "owed", CHALLENGER.address) == owed


async def test_no_attempt_has_two_certificates(faulty_network: ValidatorNetwork) -> None:
    """Whatever the tests before did."""
    accepted = await faulty_network.certificates()
    assert len(accepted) == len(faulty_network.market.view.latest.orders)
    assert set(accepted.values()) == {1}


async def test_a_validator_proves_what_it_sees_by_itself(faulty_network: ValidatorNetwork) -> None:
    """The first liar is jailed; another one takes its place, and one of the honest ones may challenge."""
    keys = {number: (await faulty_network.status(number)).vote_key for number in range(len(faulty_network.validators))}
    first = min(range(len(keys) - 1), key=lambda number: keys[number])  # whoever has the lowest rank reports first
    honest = faulty_network.validators[first]
    liar = replace(
        faulty_network.validators[-1], folder=honest.folder.with_name("second"), process=None, port=0, options=JOINS
    )
    faulty_network.validators.append(liar)
    await honest.stop()
    honest.options = JOINS
    await asyncio.gather(honest.start(), liar.start())
    await back(faulty_network, honest)
    await back(faulty_network, liar)
    await faulty_network.market.follow()
    before = await stakes(faulty_network)
    await matched_with(faulty_network, liar, Fault.EQUIVOCATING)
    accused = (await faulty_network.status(len(faulty_network.validators) - 1)).vote_key

    async def is_slashed() -> bool:
        return (await stakes(faulty_network))[accused] < before[accused]

    await until(is_slashed, "the liar is slashed")
    after = await stakes(faulty_network)
    assert {name for name, stake in after.items() if stake != before[name]} == {accused}
    operator = (await faulty_network.status(first)).operator
    assert await faulty_network.market.read("stake_registry", "owed", operator) > 0
