"""The challenger: anyone who collects what validators recorded of a match, and proves their faults to the contracts.

Nothing is believed: signatures decide whose fault it is, and the contract itself says of each proof whether it would
punish. A fault that somebody else proved first is no error.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path

from sparewatt.core.clock import SystemClock
from sparewatt.core.errors import ChainReverted, StartupError
from sparewatt.evm.chain_url import check_chain_url
from sparewatt.evm.client import EvmClient
from sparewatt.evm.evidence_calls import evidence_calls
from sparewatt.evm.json_rpc import HttpTransport, RpcClient
from sparewatt.evm.model import ContractCall
from sparewatt.market.chain_records import MarketState
from sparewatt.market.evidence import EvidenceUnavailable, evidence_of
from sparewatt.market.faults import ProvenFault
from sparewatt.protocol.contracts.match import NO_PROVIDER
from sparewatt.protocol.signing import SigningKey
from sparewatt.validator.chain_follower import MarketFollower
from sparewatt.validator.deployment import MarketDeployment, open_deployment, read_deployment_file, read_value
from sparewatt.validator.record_fetch import SilentSource, dialled, fetch_records
from sparewatt.validator.transaction_sender import TransactionSender
from sparewatt.validator.vote_key import read_key

ALREADY_PUNISHED = "ALREADY_PUNISHED"


class ProofResult(Enum):
    PROVABLE = "provable"
    """The contract would punish it; nothing was sent."""
    PUNISHED = "punished"
    """By our transaction."""
    ALREADY_PUNISHED = "already punished"
    REFUSED = "refused"
    """The contract does not take it, mostly because its time is over."""


@dataclass(frozen=True, slots=True)
class Proof:
    fault: ProvenFault
    result: ProofResult
    reason: str = ""
    """Of a refusal, as the contract names it."""
    tx_hash: str = ""


@dataclass(frozen=True, slots=True)
class MatchChallenge:
    order_id: str
    attempt: int
    sources: tuple[str, ...]
    """That gave a record."""
    silent: tuple[SilentSource, ...]
    proofs: tuple[Proof, ...]


async def challenge(
    order_id: str, *, attempt: int | None, sources: Sequence[str], key: Path | None, chain_url: str, contracts: Path
) -> MatchChallenge:
    """Without sources: all validators of the stake registry. Without a key nothing is sent. Raises StartupError."""
    signer = read_key(key) if key is not None else None
    async with _open(chain_url, contracts) as (client, deployment, follower):
        state, raw_id = follower.view.latest, bytes.fromhex(order_id[2:])
        order = state.orders.get(order_id)
        if order is None:
            raise StartupError(f"The chain has no order {order_id}, or it ended too long ago.")
        number = order.attempt if attempt is None else attempt
        asked = list(sources) or registered_urls(state, allows_private=deployment.is_local)
        is_private = bool(sources) or deployment.is_local
        fetched = await fetch_records(asked, order_id, number, allows_private=is_private)
        version = await read_value(client, deployment.contracts, "deployment_order", "stake_version_at", raw_id, number)
        try:
            faults = evidence_of(
                state,
                order_id,
                number,
                domain=deployment.domain,
                version=version,
                records=list(fetched.records.values()),
                is_book_overdue=await _is_book_overdue(client, deployment, raw_id, number, now=follower.head_unix_s),
            )
        except EvidenceUnavailable as error:
            raise StartupError(f"Nothing can be judged: {error}.") from None
        prover = FaultProver(client, deployment, signer)
        proofs = tuple([await prover.prove(fault) for fault in faults])
        return MatchChallenge(order_id, number, tuple(fetched.records), fetched.silent, proofs)


class FaultProver:
    """Puts one fault after the other to the contracts; with a key it sends the proofs that they would take."""

    def __init__(self, client: EvmClient, deployment: MarketDeployment, key: SigningKey | None) -> None:
        self._client = client
        self._contracts = deployment.contracts
        self._address = key.address if key is not None else NO_PROVIDER
        chain_id = deployment.identity.chain_id
        self._sender = TransactionSender(client, key, chain_id, SystemClock()) if key is not None else None

    async def prove(self, fault: ProvenFault) -> Proof:
        """Raises ChainUnavailable, ChainRefused."""
        (call,) = evidence_calls(self._contracts, [fault])
        try:
            return await self._prove(fault, call)
        except ChainReverted as error:
            is_done = error.reason == ALREADY_PUNISHED
            return Proof(fault, ProofResult.ALREADY_PUNISHED if is_done else ProofResult.REFUSED, error.reason)

    async def _prove(self, fault: ProvenFault, call: ContractCall) -> Proof:
        if self._sender is None:
            await self._client.call(call, sender=self._address)
            return Proof(fault, ProofResult.PROVABLE)
        receipt = await self._sender.send(call)
        return Proof(fault, ProofResult.PUNISHED, tx_hash="0x" + receipt.tx_hash.hex())


@asynccontextmanager
async def _open(chain_url: str, contracts: Path) -> AsyncIterator[tuple[EvmClient, MarketDeployment, MarketFollower]]:
    """The chain's node, the contracts, and the market as their events say. Raises StartupError, WrongChain."""
    clock, file = SystemClock(), read_deployment_file(contracts)
    transport = HttpTransport(check_chain_url(chain_url))
    try:
        client = EvmClient(RpcClient(transport, clock))
        deployment = await open_deployment(client, file)
        follower = MarketFollower(client, deployment, clock, depth=1)
        await follower.look()
        if not follower.is_synced:
            raise StartupError(f"The chain at {chain_url} could not be read to its end. Try again.")
        yield client, deployment, follower
    finally:
        await transport.close()


async def _is_book_overdue(
    client: EvmClient, deployment: MarketDeployment, order_id: bytes, attempt: int, *, now: int
) -> bool:
    """Whether the leaves were demanded on chain, and the time to publish them is over."""
    read = partial(read_value, client, deployment.contracts, "dispute_book")
    _, demanded_at, _, is_published = await read("demand_of", order_id, attempt)
    return demanded_at > 0 and not is_published and now > demanded_at + await read("BOOK_S")


def registered_urls(state: MarketState, *, allows_private: bool) -> list[str]:
    """Of the stake registry: what strangers wrote there, so private addresses are dialled on a local chain only."""
    return sorted(set(dialled((each.url for each in state.validators.values()), allows_private=allows_private)))
