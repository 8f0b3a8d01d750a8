"""Joining, activating and leaving read the registry first and do only what is missing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from sparewatt.core.errors import ChainReverted, StartupError
from sparewatt.evm.abi_codec import decode_values, encode_values
from sparewatt.evm.client import EvmClient
from sparewatt.evm.contract_abi import Contracts, shipped_abis
from sparewatt.evm.model import BlockHeader, ChainIdentity, ContractCall
from sparewatt.protocol.contracts.match import NO_PROVIDER
from sparewatt.protocol.contracts.meta_transactions import VoteKey
from sparewatt.protocol.signing import SigningKey, recover_address
from sparewatt.protocol.typed_message import contract_domain, message_digest
from sparewatt.testing.clocks import InstantClock
from sparewatt.validator.deployment import MarketDeployment
from sparewatt.validator.membership import ACTIVATE_TRIES_MAX, Membership, check_own_url
from sparewatt.validator.transaction_sender import TransactionSender

OPERATOR, VOTES, OTHER = (SigningKey(bytes([number]) * 32) for number in (1, 2, 3))
ADDRESSES = {name: f"0x{index:040x}" for index, name in enumerate(shipped_abis(), 1)}
CONTRACTS = Contracts(shipped_abis(), ADDRESSES)
URL = "https://v.example:8700"
STAKE = 1_000_000_000


def _selectors() -> dict[tuple[str, bytes], tuple[str, list[str], list[str]]]:
    found = {}
    for contract in ("stake_registry", "token"):
        for entry in shipped_abis()[contract].abi:
            if entry.type == "function":
                inputs = [param.canonical_type() for param in entry.inputs]
                outputs = [param.canonical_type() for param in entry.outputs]
                found[ADDRESSES[contract], entry.signature_hash()[:4]] = (entry.name, inputs, outputs)
    return found


SELECTORS = _selectors()


@dataclass
class Registry:
    """The registry and the token, as far as one operator meets them."""

    vote_key: str = NO_PROVIDER
    url: str = ""
    stake: int = 0
    pending: int = 0
    since: int = 5
    unbonding: int = 0
    ready_at: int = 0
    jailed: bool = False
    balance: int = 0
    allowance: int = 0
    owed: int = 0
    activate_s: int = 2
    early: int = 0
    """How often activation is too early."""
    is_overtaken: bool = False
    """Whether somebody else activates first."""
    done: list[str] = field(default_factory=list)
    proof: bytes = b""

    @property
    def address(self) -> str:
        return OPERATOR.address

    async def head(self) -> BlockHeader:
        return BlockHeader(1, b"", b"", 100, 0)

    async def call(self, call: ContractCall) -> bytes:
        name, _, outputs = SELECTORS[call.to, call.data[:4]]
        values: dict[str, Any] = {
            "validator_of": (
                self.vote_key,
                self.stake,
                self.unbonding,
                self.ready_at,
                self.jailed,
                self.pending,
                self.since,
            ),
            "url_of": self.url,
            "balanceOf": self.balance,
            "allowance": self.allowance,
            "owed": self.owed,
            "ACTIVATE_S": self.activate_s,
        }
        return encode_values(outputs, [values[name]])

    async def send(self, call: ContractCall) -> None:
        name, inputs, _ = SELECTORS[call.to, call.data[:4]]
        arguments = decode_values(inputs, call.data[4:])
        if name == "activate" and self.early:
            self.early -= 1
            raise ChainReverted("TOO_EARLY")
        if name == "activate" and self.is_overtaken:
            self.stake, self.pending = self.stake + self.pending, 0
            raise ChainReverted("NOTHING_PENDING")
        self.done.append(name)
        getattr(self, f"_{name}")(*arguments)

    def _faucet(self, _to: str, amount: int) -> None:
        self.balance += amount

    def _approve(self, spender: str, amount: int) -> None:
        assert spender == ADDRESSES["stake_registry"]
        self.allowance = amount

    def _join(self, vote_key: str, proof: bytes, url: str, amount: int) -> None:
        assert self.vote_key == NO_PROVIDER, "ALREADY_JOINED"
        self.vote_key, self.url, self.proof = vote_key, url, proof
        self._deposit(amount)

    def _deposit(self, amount: int) -> None:
        assert min(self.balance, self.allowance) >= amount
        self.balance, self.allowance = self.balance - amount, self.allowance - amount
        self.pending += amount

    def _activate(self, operator: str) -> None:
        assert operator == OPERATOR.address
        self.stake, self.pending = self.stake + self.pending, 0

    def _set_vote_key(self, vote_key: str, proof: bytes) -> None:
        self.vote_key, self.proof = vote_key, proof

    def _set_url(self, url: str) -> None:
        self.url = url

    def _request_unbond(self, amount: int) -> None:
        assert amount == self.stake + self.pending
        self.stake = self.pending = 0
        self.unbonding, self.ready_at = amount, 2**60

    def _finish_unbond(self) -> None:
        self.owed, self.unbonding = self.unbonding, 0

    def _withdraw(self, receiver: str) -> None:
        assert receiver == OPERATOR.address
        self.balance, self.owed = self.balance + self.owed, 0


def a_membership(registry: Registry, *, chain_id: int = 31337) -> Membership:
    anything: Any = registry
    domain = contract_domain(chain_id=chain_id, contract=ADDRESSES["task_manager"])
    deployment = MarketDeployment(ChainIdentity(chain_id, b""), CONTRACTS, 0, domain)
    return Membership(cast(EvmClient, anything), deployment, cast(TransactionSender, anything), InstantClock())


async def test_joining_with_nothing_takes_test_money_and_stakes_it() -> None:
    registry = Registry()
    state = await a_membership(registry).join(VOTES, url=URL, stake_uusd=STAKE)
    assert registry.done == ["faucet", "approve", "join"]
    assert (state.vote_key, state.url, state.pending_uusd) == (VOTES.address, URL, STAKE)
    domain = contract_domain(chain_id=31337, contract=ADDRESSES["stake_registry"])
    digest = message_digest(domain, VoteKey(OPERATOR.address, VOTES.address))
    assert recover_address(digest, registry.proof) == VOTES.address


async def test_joining_again_does_nothing() -> None:
    registry = Registry()
    membership = a_membership(registry)
    await membership.join(VOTES, url=URL, stake_uusd=STAKE)
    await membership.activate()
    registry.done.clear()
    state = await membership.join(VOTES, url=URL, stake_uusd=STAKE)
    assert (registry.done, state.stake_uusd) == ([], STAKE)


async def test_a_step_that_was_interrupted_is_not_repeated() -> None:
    registry = Registry(balance=STAKE // 2, allowance=STAKE)
    await a_membership(registry).join(VOTES, url=URL, stake_uusd=STAKE)
    assert registry.done == ["faucet", "join"]
    assert registry.balance == 0


async def test_more_stake_another_key_and_another_url_are_changed_one_by_one() -> None:
    registry = Registry(vote_key=VOTES.address, url=URL, stake=STAKE, balance=10 * STAKE)
    membership = a_membership(registry)
    await membership.join(VOTES, url=URL, stake_uusd=3 * STAKE)
    assert (registry.done, registry.pending) == (["approve", "deposit"], 2 * STAKE)
    registry.done.clear()
    await membership.join(OTHER, url=URL + "1", stake_uusd=STAKE)
    assert registry.done == ["set_vote_key", "set_url"]
    assert (registry.vote_key, registry.url) == (OTHER.address, URL + "1")


async def test_a_jailed_operator_is_told_so() -> None:
    with pytest.raises(StartupError, match="jailed for good"):
        await a_membership(Registry(vote_key=VOTES.address, jailed=True)).join(VOTES, url=URL, stake_uusd=STAKE)


async def test_real_money_is_never_made() -> None:
    registry = Registry(balance=5_000_000)
    with pytest.raises(StartupError, match=r"has 5\.00 dollars .* needs 1000\.00"):
        await a_membership(registry, chain_id=1).join(VOTES, url=URL, stake_uusd=STAKE)
    assert registry.done == []


async def test_activation_waits_until_it_is_due() -> None:
    registry = Registry(vote_key=VOTES.address, pending=STAKE, early=3)
    state = await a_membership(registry).activate()
    assert (state.stake_uusd, state.pending_uusd) == (STAKE, 0)
    assert (await a_membership(registry).activate()).stake_uusd == STAKE
    assert registry.done == ["activate"]


async def test_activation_that_is_never_due_ends() -> None:
    """The machine's clock is far ahead of the chain's."""
    registry = Registry(vote_key=VOTES.address, pending=STAKE, early=10**6)
    assert (await a_membership(registry).activate()).pending_uusd == STAKE
    assert registry.early == 10**6 - ACTIVATE_TRIES_MAX


async def test_activation_is_waited_for_and_not_tried_before() -> None:
    registry = Registry(vote_key=VOTES.address, pending=STAKE, activate_s=86_400)
    membership = a_membership(registry)
    registry.since = int(membership.clock.unix_s())
    state = await membership.activate(within_s=60)
    assert (state.pending_uusd, registry.done) == (STAKE, [])
    assert state.activates_at == state.pending_since + 86_400
    before = membership.clock.now_s()
    assert (await membership.activate()).stake_uusd == STAKE
    assert membership.clock.now_s() - before > 80_000
    assert registry.done == ["activate"]


async def test_stake_that_somebody_else_activates_is_no_error() -> None:
    registry = Registry(vote_key=VOTES.address, pending=STAKE, is_overtaken=True)
    assert (await a_membership(registry).activate()).stake_uusd == STAKE


async def test_whoever_has_not_joined_cannot_leave() -> None:
    with pytest.raises(StartupError, match="has not joined"):
        await a_membership(Registry(balance=5)).leave()


async def test_leaving_unbonds_waits_and_pays_out() -> None:
    registry = Registry(vote_key=VOTES.address, stake=STAKE, pending=5)
    membership = a_membership(registry)
    assert (await membership.leave()).unbonding_uusd == STAKE + 5
    assert (await membership.leave()).unbonding_uusd == STAKE + 5
    assert registry.done == ["request_unbond"]
    registry.ready_at = 50
    state = await membership.leave()
    assert registry.done == ["request_unbond", "finish_unbond", "withdraw"]
    assert (state.unbonding_uusd, registry.balance) == (0, STAKE + 5)
    await membership.leave()
    assert len(registry.done) == 3


@pytest.mark.parametrize(
    "url",
    [
        "",
        "v.example",
        "ftp://v.example",
        "https://",
        "https://a:b@v.example",
        "https://v.example?a",
        "https://" + "a" * 200,
    ],
)
def test_an_own_url_that_nobody_could_dial_is_refused(url: str) -> None:
    with pytest.raises(StartupError, match="like https"):
        check_own_url(url)


@pytest.mark.parametrize("url", [URL, "http://127.0.0.1:8700"])
def test_a_usual_url_is_taken(url: str) -> None:
    assert check_own_url(url) == url
