"""A network to start a test from: all contracts deployed and wired, with seven validators and some providers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sparewatt.core.rng import seeded
from sparewatt.market.rule import snapshot_tree
from sparewatt.protocol.contracts.match import Profile, ReputationSnapshot
from sparewatt.protocol.contracts.merkle import MerkleTree
from sparewatt.protocol.contracts.meta_transactions import NodeKey, VoteKey
from sparewatt.protocol.signing import Domain, SigningKey
from sparewatt.protocol.typed_message import TypedMessage, contract_domain, message_digest
from tests.evm.machine import CHAIN_ID, START, Contract, deploy, set_time, wait

ATTEMPT_S, CHALLENGE_S, UNBOND_S, BOOK_S, EXIT_S, SPACING_S = 60, 600, 3600, 60, 3600, 10
ACTIVATE_S, ROOT_DELAY_S = 2, 500
MIN_STAKE = 100_000_000
BOOK_BOND = 5_000_000
FEE_BPS = 500
USD = 1_000_000
RICH = 10**12
DEPLOYER = "0x" + "dd" * 20
GUARDIAN, INSURANCE, TREASURY, OPERATOR = ("0x" + byte * 20 for byte in ("a1", "a2", "a3", "a4"))
ACTIVE = 2
MAX = 2**256 - 1


def key(number: int) -> SigningKey:
    return SigningKey.generate(rng=seeded(number))


@dataclass
class Validator:
    operator: SigningKey
    vote_key: SigningKey
    history_index: int = 0


@dataclass
class Provider:
    owner: SigningKey
    node_key: SigningKey

    @property
    def address(self) -> str:
        return self.owner.address


@dataclass
class Network:
    token: Contract
    registry: Contract
    stakes: Contract
    escrow: Contract
    tasks: Contract
    orders: Contract
    moves: Contract
    dispute: Contract
    book: Contract
    settlement: Contract
    validators: list[Validator] = field(default_factory=list)
    providers: list[Provider] = field(default_factory=list)
    profiles: tuple[Profile, ...] = ()
    snapshot: MerkleTree | None = None
    epoch: int = 0

    @property
    def vaults(self) -> list[Contract]:
        return [self.stakes, self.escrow, self.book, self.settlement]

    def domain(self, contract: Contract) -> Domain:
        return contract_domain(chain_id=CHAIN_ID, contract=contract.address)

    def signed(self, signer: SigningKey, contract: Contract, message: TypedMessage) -> bytes:
        return signer.sign(message_digest(self.domain(contract), message))

    def fund(self, account: str, amount: int = RICH) -> None:
        self.token.faucet(account, amount)
        for vault in self.vaults:
            self.token.approve(vault.address, MAX, who=account)

    def add_validator(self, number: int, *, stake: int = MIN_STAKE) -> Validator:
        """Join and wait until the stake weighs."""
        validator = self.join(number, stake=stake)
        wait(ACTIVATE_S)
        self.stakes.activate(validator.operator.address)
        return validator

    def add_stake(self, operator: str, amount: int) -> None:
        """Deposit and wait until it weighs."""
        self.stakes.deposit(amount, who=operator)
        wait(ACTIVATE_S)
        self.stakes.activate(operator)

    def join(self, number: int, *, stake: int = MIN_STAKE) -> Validator:
        validator = Validator(key(1000 + number), key(2000 + number))
        operator, vote_key = validator.operator.address, validator.vote_key.address
        self.fund(operator)
        proof = self.signed(validator.vote_key, self.stakes, VoteKey(operator, vote_key))
        self.stakes.join(vote_key, proof, f"http://v{number}", stake, who=operator)
        self.validators.append(validator)
        self.validators.sort(key=lambda v: v.vote_key.address)
        return validator

    def add_provider(self, number: int, *, bond: int = 100 * USD) -> Provider:
        provider = Provider(key(3000 + number), key(4000 + number))
        self.fund(provider.address)
        proof = self.signed(provider.node_key, self.registry, NodeKey(provider.address, provider.node_key.address))
        claims = (1, 2, 3, 4, 24, 8, USD, b"\1" * 32)
        self.registry.register(claims, provider.node_key.address, proof, who=provider.address)
        self.registry.set_status(ACTIVE, who=provider.address)
        if bond:
            self.stakes.deposit_bond(provider.address, bond, who=provider.address)
        self.providers.append(provider)
        self.providers.sort(key=lambda p: p.address)
        return provider

    def set_node_key(self, provider: Provider, node_key: SigningKey) -> None:
        proof = self.signed(node_key, self.registry, NodeKey(provider.address, node_key.address))
        self.registry.set_node_key(node_key.address, proof, who=provider.address)
        place = next(i for i, known in enumerate(self.providers) if known.address == provider.address)
        self.providers[place] = Provider(provider.owner, node_key)

    def votes(self, message: TypedMessage, *, voters: list[Validator] | None = None) -> list[tuple[bytes, int]]:
        """Votes for a message of the match, in ascending order of their signers, as a certificate needs them."""
        chosen = self.validators if voters is None else voters
        return [(self.signed(v.vote_key, self.tasks, message), v.history_index) for v in chosen]

    def post_snapshot(self, profiles: list[Profile]) -> None:
        self.profiles, self.snapshot = snapshot_tree(profiles)
        self.epoch += 1
        count, root = len(self.profiles), self.snapshot.root
        message = ReputationSnapshot(self.epoch, 0, root, count, b"\7" * 32)
        self.tasks.post_snapshot(self.epoch, 0, root, count, b"\7" * 32, self.votes(message))


def profile_of(provider: str, *, epoch: int = 1, **changes: Any) -> Profile:
    usual: dict[str, Any] = {
        "country": 49,
        "zone": 1,
        "tier": 2,
        "gpu_model": 3,
        "gpu_class": 4,
        "vram_gb": 24,
        "gpu_units": 2,
        "compliance": 0b11,
        "uptime_ppm": 990_000,
        "reputation_ppm": 980_000,
    }
    return Profile(provider=provider, epoch=epoch, **{**usual, **changes})


def bare_network(*, token: str = "token") -> Network:
    set_time(START)
    coin = deploy(token)
    times = ATTEMPT_S, CHALLENGE_S, UNBOND_S, ACTIVATE_S
    stakes = deploy("stake_registry", coin.address, INSURANCE, MIN_STAKE, *times)
    registry = deploy("provider_registry", GUARDIAN, stakes.address)
    escrow = deploy("escrow", coin.address, TREASURY, FEE_BPS)
    tasks = deploy("task_manager", stakes.address, registry.address, SPACING_S)
    sisters = [contract.address for contract in (registry, stakes, escrow, tasks)]
    orders = deploy("deployment_order", *sisters, coin.address)
    moves = deploy("lease_moves", orders.address)
    parts = [stakes.address, registry.address, orders.address, tasks.address]
    dispute = deploy("dispute", *parts)
    book = deploy("dispute_book", coin.address, *parts, BOOK_S, BOOK_BOND)
    keys = OPERATOR, GUARDIAN
    settlement = deploy("settlement", coin.address, stakes.address, *keys, ROOT_DELAY_S, EXIT_S, BOOK_S)
    network = Network(coin, registry, stakes, escrow, tasks, orders, moves, dispute, book, settlement)
    stakes.wire(orders.address, [dispute.address, book.address], who=DEPLOYER)
    escrow.wire(orders.address, who=DEPLOYER)
    tasks.wire(orders.address, who=DEPLOYER)
    orders.wire(moves.address, who=DEPLOYER)
    return network


def full_network(*, n_validators: int = 7, n_providers: int = 5, token: str = "token") -> Network:
    network = bare_network(token=token)
    for number in range(n_validators):
        network.add_validator(number)
    for number in range(n_providers):
        network.add_provider(number)
    network.post_snapshot([profile_of(provider.address) for provider in network.providers])
    wait(1)
    return network
