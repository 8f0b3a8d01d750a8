"""A market on a real chain, used without web3: every transaction and every read goes through `sparewatt.evm`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from sparewatt.chain.contracts import DeploymentRecord
from sparewatt.core.clock import SystemClock
from sparewatt.core.errors import ChainReverted
from sparewatt.evm.client import EvmClient
from sparewatt.evm.contract_abi import Contracts, shipped_abis
from sparewatt.evm.json_rpc import HttpTransport, RpcClient
from sparewatt.evm.log_reader import BlockBatch, LogReader, Reorg
from sparewatt.evm.transactions import sign_transaction
from sparewatt.market.chain_records import MarketState, OrderRecord
from sparewatt.market.chain_view import ChainView, RollbackTooDeep
from sparewatt.market.rule import book_of, commit_of, leaf_of, task_of
from sparewatt.protocol.contracts.match import NO_PROVIDER, Bid, OrderTerms, Profile, ReputationSnapshot, Vote
from sparewatt.protocol.contracts.merkle import merkle_tree
from sparewatt.protocol.contracts.meta_transactions import NodeKey, VoteKey
from sparewatt.protocol.signing import SigningKey
from sparewatt.protocol.typed_message import TypedMessage, contract_domain, message_digest, struct_hash
from tests.order_terms import order_terms

USD = 10**6
DEPTH = 3
STEPS_MAX = 200
POLLS_MAX, POLL_S = 2_000, 0.01


def key(number: int) -> SigningKey:
    return SigningKey(number.to_bytes(32, "big"))


RENTER, ALICE, BOB = key(501), key(502), key(503)
NODE_KEYS: dict[str, SigningKey] = {ALICE.address: key(602), BOB.address: key(603)}
OPERATORS = [key(701), key(702)]
VOTE_KEYS = {OPERATORS[0].address: key(801), OPERATORS[1].address: key(802)}

TERMS = order_terms(latency_value=0, ignore=(BOB.address,))


def match_arguments(
    order: OrderRecord,
    prices: Mapping[str, int],
    profiles: Sequence[Profile],
    *,
    snapshot_root: str,
    commit: Callable[[Bid], bytes],
    votes: Callable[[Vote], list[tuple[bytes, int]]],
) -> tuple[object, ...]:
    """Of `accept_match`: the bids of these providers, ranked and voted for."""
    raw_id = bytes.fromhex(order.order_id[2:])
    bids = {
        provider: Bid(raw_id, order.attempt, provider, price, b"\2" * 32, b"\4" * 32)
        for provider, price in prices.items()
    }
    known = {profile.provider: profile for profile in profiles}
    book = book_of(raw_id, [leaf_of(order.terms, bid, known[provider]) for provider, bid in bids.items()])
    task = task_of(
        book,
        attempt=order.attempt,
        policy_hash=struct_hash(order.terms),
        snapshot_epoch=order.snapshot_epoch,
        snapshot_root=bytes.fromhex(snapshot_root[2:]),
        stake_version=order.stake_version,
    )
    candidates = [
        (book.leaves[index].values(), book.tree.path(index), commit(bids[book.leaves[index].provider]))
        for index in book.ranking[:3]
    ]
    vote = Vote(raw_id, order.attempt, 0, struct_hash(task))
    return task.values(), 0, order.terms.values(), candidates, votes(vote)


@dataclass
class MarketScene:
    client: EvmClient
    contracts: Contracts
    reader: LogReader
    chain_id: int
    start_block: int
    view: ChainView
    profiles: list[Profile] = field(default_factory=list)
    epoch: int = 0

    # acting

    async def send(self, who: SigningKey, contract: str, function: str, *args: object) -> None:
        call = self.contracts[contract].encode_call(function, *args)
        nonce = await self.client.next_nonce(who.address)
        gas_limit, fees = await self.client.gas_limit(call, sender=who.address), await self.client.fees()
        signed = sign_transaction(call, who, nonce=nonce, chain_id=self.chain_id, gas_limit=gas_limit, fees=fees)
        assert await self.client.send(signed.raw)
        assert await self._succeeded(signed.tx_hash), f"{contract}.{function} failed"

    async def _succeeded(self, tx_hash: bytes) -> bool:
        for _ in range(POLLS_MAX):
            receipt = await self.client.receipt(tx_hash)
            if receipt is not None:
                return receipt.succeeded
            await asyncio.sleep(POLL_S)
        raise AssertionError("the transaction is not mined")

    async def rpc(self, method: str, *params: object) -> Any:
        return await self.client.rpc.call(Any, method, *params)

    async def wait(self, seconds: int) -> None:
        await self.rpc("evm_increaseTime", seconds)
        await self.rpc("evm_mine")

    def signed(self, signer: SigningKey, contract: str, message: TypedMessage) -> bytes:
        domain = contract_domain(chain_id=self.chain_id, contract=self.contracts[contract].address)
        return signer.sign(message_digest(domain, message))

    async def fund(self, who: SigningKey, spender: str, units: int) -> None:
        await self.send(who, "token", "faucet", who.address, units)
        await self.send(who, "token", "approve", self.contracts[spender].address, units)

    async def add_provider(self, who: SigningKey, *, bond: int) -> None:
        node_key = NODE_KEYS[who.address]
        proof = self.signed(node_key, "provider_registry", NodeKey(who.address, node_key.address))
        claims = (49, 1, 2, 3, 24, 1, 2 * USD, b"\1" * 32)
        await self.send(who, "provider_registry", "register", claims, node_key.address, proof)
        await self.send(who, "provider_registry", "set_status", 2)
        await self.fund(who, "stake_registry", bond)
        await self.send(who, "stake_registry", "deposit_bond", who.address, bond)
        self.profiles.append(Profile(who.address, self.epoch + 1, 49, 1, 2, 3, 4, 24, 1, 0, 990_000, 980_000))

    async def add_validator(self, who: SigningKey, *, stake: int) -> None:
        vote_key = VOTE_KEYS[who.address]
        await self.fund(who, "stake_registry", stake)
        proof = self.signed(vote_key, "stake_registry", VoteKey(who.address, vote_key.address))
        url = f"https://{who.address[:8]}.example"
        await self.send(who, "stake_registry", "join", vote_key.address, proof, url, stake)

    async def post_snapshot(self) -> None:
        self.epoch += 1
        tree = merkle_tree([struct_hash(profile) for profile in sorted(self.profiles, key=lambda p: p.provider)])
        snapshot = ReputationSnapshot(self.epoch, 0, tree.root, len(self.profiles), b"\7" * 32)
        await self.send(RENTER, "task_manager", "post_snapshot", *snapshot.values(), self.votes(snapshot))

    def votes(self, message: TypedMessage) -> list[tuple[bytes, int]]:
        """Of all that have weight by the view itself: it has to know the hints that the contract wants."""
        keys: dict[str, SigningKey] = {vote_key.address: vote_key for vote_key in VOTE_KEYS.values()}
        weights = self.view.latest.weights_at(self.view.latest.stake_version)
        return [(self.signed(keys[each.vote_key], "task_manager", message), each.history_index) for each in weights]

    async def order(self, *, terms: OrderTerms = TERMS, deposit: int = 5 * USD, spec_hash: bytes = b"\3" * 32) -> str:
        await self.fund(RENTER, "escrow", deposit)
        head = await self.client.head()
        values = (terms.values(), spec_hash, deposit, head.unix_s + 3_600, 3)
        await self.send(RENTER, "deployment_order", "create_order", *values)
        await self.follow()
        return list(self.view.latest.orders)[-1]

    async def match(self, order_id: str, prices: Mapping[str, int]) -> None:
        """Bids by their providers, certified by all validators."""
        order = self.view.latest.orders[order_id]
        arguments = match_arguments(
            order,
            prices,
            self.profiles,
            snapshot_root=self.view.latest.snapshots[order.snapshot_epoch].root,
            commit=self._commit,
            votes=self.votes,
        )
        await self.send(RENTER, "task_manager", "accept_match", *arguments)
        await self.follow()

    def _commit(self, bid: Bid) -> bytes:
        return self.signed(NODE_KEYS[bid.provider], "task_manager", commit_of(bid))

    # reading

    async def follow(self) -> list[Reorg]:
        """Until nothing is new. Returns the reorgs on the way."""
        reorgs: list[Reorg] = []
        for _ in range(STEPS_MAX):
            step = await self.reader.step()
            match step:
                case None:
                    return reorgs
                case BlockBatch():
                    self.view.advance(step.events, to_block=step.block.number)
                case Reorg():
                    reorgs.append(step)
                    self._go_back(step)
        raise AssertionError("the reader does not come to an end")

    def _go_back(self, reorg: Reorg) -> None:
        try:
            self.view.roll_back(to_block=reorg.common_block)
        except RollbackTooDeep:
            self.view = ChainView(depth=DEPTH, start_block=self.start_block)
            self.reader = LogReader(self.reader.client, self.contracts, self.reader.identity, self.start_block)

    async def read(self, contract: str, function: str, *args: object) -> Any:
        called = self.contracts[contract]
        data = await self.client.call(called.encode_call(function, *args))
        return called.decode_result(function, data, n_args=len(args))

    async def reverts(self, who: SigningKey, contract: str, function: str, *args: object) -> str:
        """The contract's reason."""
        try:
            await self.client.call(self.contracts[contract].encode_call(function, *args), sender=who.address)
        except ChainReverted as error:
            return error.reason
        raise AssertionError("it did not revert")

    async def check(self, state: MarketState | None = None) -> None:
        """Every record of the view says what the contracts' views say."""
        state = state or self.view.latest
        for order_id in state.orders:
            await self._check_order(state, order_id)
        for provider in state.providers:
            await self._check_provider(state, provider)
        await self._check_stakes(state)
        epoch = await self.read("task_manager", "latest_epoch")
        snapshot = state.latest_snapshot
        assert (snapshot.epoch if snapshot else 0) == epoch
        if snapshot is not None:
            root, count, posted_at = await self.read("task_manager", "snapshot_of", epoch)
            assert (f"0x{root.hex()}", count, posted_at) == (snapshot.root, snapshot.count, snapshot.posted_at)

    async def _check_order(self, state: MarketState, order_id: str) -> None:
        order, lease, raw_id = state.orders[order_id], state.leases.get(order_id), bytes.fromhex(order_id[2:])
        renter, number, most, attempt, version, epoch, expires_at, policy, spec = await self.read(
            "deployment_order", "order_of", raw_id
        )
        assert (order.renter, order.state.value, order.max_attempts) == (renter, number, most)
        assert (order.attempt, order.stake_version, order.snapshot_epoch) == (attempt, version, epoch)
        assert (order.expires_at, order.spec_hash) == (expires_at, f"0x{spec.hex()}")
        assert struct_hash(order.terms) == policy
        for opened, at in order.opened_at.items():
            assert await self.read("deployment_order", "opened_at", raw_id, opened) == at
        stream = state.streams[order_id]
        assert await self.read("escrow", "deposit_of", raw_id) == stream.deposit_uusd
        assert (await self.read("escrow", "stream_of", raw_id))[2] == stream.rate_uusd
        if order.certificate is not None:
            record = await self.read("task_manager", "record_of", raw_id, order.certificate.attempt)
            assert order.certificate.record.record_hash() == record
        names = [part.name for part in self._outputs("deployment_order", "lease_of")]
        stored = dict(zip(names, await self.read("deployment_order", "lease_of", raw_id), strict=True))
        assert stored["state"] == (lease.state.value if lease else 0)
        if lease is not None:
            plain = ("term", "position", "rate_uusd", "locked_uusd", "confirm_by", "running_since", "paused_at")
            assert {name: getattr(lease, name) for name in plain} == {name: stored[name] for name in plain}
            assert (lease.notice_at, lease.resumed) == (stored["notice_at"], stored["resumed"])
            assert (lease.provider or NO_PROVIDER, lease.vacated_at) == (stored["provider"], stored["vacated_at"])

    def _outputs(self, contract: str, function: str) -> Any:
        entries = shipped_abis()[contract].abi
        return next(entry for entry in entries if entry.name == function).outputs[0].components

    async def _check_provider(self, state: MarketState, address: str) -> None:
        provider, bond = state.providers[address], state.bonds[address]
        assert await self.read("provider_registry", "status_of", address) == provider.status.value
        current, since, _ = await self.read("provider_registry", "node_key_of", address)
        assert (provider.node_key, provider.node_keys[-1].since) == (current, since)
        assert await self.read("provider_registry", "node_key_at", address, since + 1) == provider.node_key_at(
            since + 1
        )
        free, locked, unbonding, _ = await self.read("stake_registry", "bond_of", address)
        assert (bond.free_uusd, bond.locked_uusd, bond.unbonding_uusd) == (free, locked, unbonding)

    async def _check_stakes(self, state: MarketState) -> None:
        assert await self.read("stake_registry", "version") == state.stake_version
        for version in range(state.stake_version + 1):
            assert await self.read("stake_registry", "total_at", version) == state.total_at(version)
            weights = state.weights_at(version)
            keys, hints = [each.vote_key for each in weights], [each.history_index for each in weights]
            weight = await self.read("stake_registry", "weight_of", keys, hints, version)
            assert weight == sum(each.weight for each in weights) == state.total_at(version)
        for operator, validator in state.validators.items():
            stored = await self.read("stake_registry", "validator_of", operator)
            vote_key, stake, unbonding, ready_at, jailed, pending, pending_since = stored
            assert (validator.vote_key, validator.stake_uusd, validator.unbonding_uusd) == (vote_key, stake, unbonding)
            assert (validator.ready_at, validator.is_jailed) == (ready_at, jailed)
            assert (validator.pending_uusd, validator.pending_since) == (pending, pending_since)
            assert await self.read("stake_registry", "url_of", operator) == validator.url


@asynccontextmanager
async def open_market(url: str, record: DeploymentRecord) -> AsyncIterator[MarketScene]:
    transport = HttpTransport(url)
    client = EvmClient(RpcClient(transport, SystemClock()))
    try:
        contracts = Contracts(shipped_abis(), record.addresses)
        reader = LogReader(client, contracts, await client.identity(), record.start_block)
        view = ChainView(depth=DEPTH, start_block=record.start_block)
        yield MarketScene(client, contracts, reader, record.chain_id, record.start_block, view)
    finally:
        await transport.close()
