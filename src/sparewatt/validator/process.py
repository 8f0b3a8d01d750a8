"""The validator's process: the composition root of its parts, from the settings to the last signature.

SIGTERM stops it at once: everything that it has promised is in its write-ahead file, so there is nothing to drain.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from sparewatt import __version__
from sparewatt.core.clock import Clock, SystemClock, sleep_until
from sparewatt.core.errors import InvalidField, StartupError
from sparewatt.core.log import Logger
from sparewatt.core.money import parse_usd
from sparewatt.core.rng import Rng, SystemRng
from sparewatt.evm.client import EvmClient
from sparewatt.evm.json_rpc import HttpTransport
from sparewatt.evm.loopback_transport import LoopbackTransport
from sparewatt.machine.data_dir import make_private_dir, write_private
from sparewatt.machine.signals import stop_event
from sparewatt.machine.stranger_http import StrangerClient
from sparewatt.market.chain_records import ValidatorRecord
from sparewatt.market.chain_view import ChainView
from sparewatt.market.match.model import PUBLIC_TIMING, MatchTiming, QuorumCertificate
from sparewatt.market.match.record import AuctionRecord
from sparewatt.market.outages.model import DownCertificate
from sparewatt.market.quorum import is_quorum
from sparewatt.market.snapshots.model import SnapshotCertificate, SnapshotDoubleSign
from sparewatt.protocol.api.validators import (
    MESSAGES_PATH,
    OUTAGE_MESSAGES_PATH,
    EigenService,
    PeerStatus,
    ServiceStatus,
    ValidatorStatus,
)
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.protocol.contracts.match_messages import decode_message
from sparewatt.protocol.contracts.outage_messages import decode_outage_message
from sparewatt.protocol.contracts.snapshot_messages import decode_snapshot_message
from sparewatt.protocol.signing import SigningKey
from sparewatt.validator.api import ValidatorApi
from sparewatt.validator.body_signature import SignedBody, read_body_signature, sign_body
from sparewatt.validator.book_service import BookService
from sparewatt.validator.chain_follower import MarketFollower
from sparewatt.validator.deployment import (
    MarketDeployment,
    NetworkTimes,
    open_deployment,
    read_deployment_file,
    read_times,
)
from sparewatt.validator.eigen_api import Health
from sparewatt.validator.fault_reporter import LOCAL_RANK_S, PUBLIC_RANK_S, FaultReporter
from sparewatt.validator.match_host import MatchHost
from sparewatt.validator.membership import Membership
from sparewatt.validator.metrics import RpcUse, metrics_page
from sparewatt.validator.outage_host import OutageHost
from sparewatt.validator.peers import REQUESTS_PER_PEER, PeerNetwork
from sparewatt.validator.record_fetch import peer_records
from sparewatt.validator.record_files import BookFiles, RecordFiles
from sparewatt.validator.registration import Registration
from sparewatt.validator.rpc_meter import MeteredRpcClient, MethodUse
from sparewatt.validator.server import BoundedServer
from sparewatt.validator.settings import ValidatorSettings
from sparewatt.validator.signed_file import SignedFile
from sparewatt.validator.snapshot_host import SnapshotHost
from sparewatt.validator.submitter import CertificateSubmitter
from sparewatt.validator.transaction_sender import TransactionSender
from sparewatt.validator.vote_key import is_usable, open_vote_key, read_key, read_or_create_key, retired_keys

_log = Logger("sparewatt.validator")
OPERATOR_KEY_FILE = "operator.key"
RECORDS_FOLDER = "records"
URL_FILE = "url"
"""Where the API listens, for commands on this machine."""
BUSY_POLL_S = 0.1
"""Between two looks at the chain while a match is open."""
LOCAL_BEAT_S, PUBLIC_BEAT_S = 2.0, 15.0
NANO_PER_UUSD = 1_000


async def run_validator(settings: ValidatorSettings) -> None:
    """Until stopped. Raises StartupError, WrongChain, ContractsOutdated, ChainUnavailable."""
    settings.check()
    stake_uusd = stake_of(settings.join_stake) if settings.join_stake is not None else None
    stop = stop_event()
    clock, rng = SystemClock(), SystemRng()
    make_private_dir(settings.data)
    async with _open_chain(settings, clock) as chain:
        vote_key, signed = _open_vote_key(settings, chain.deployment, rng)
        try:
            operator = operator_key(settings, is_local=chain.deployment.is_local, rng=rng)
            validator = Validator(settings, chain, operator, vote_key, signed, clock=clock, rng=rng)
            await validator.run(stop, stake_uusd=stake_uusd)
        finally:
            signed.close()


@dataclass(frozen=True, slots=True)
class ChainAccess:
    client: EvmClient
    polling: EvmClient
    """Gives up at the first failure: the next look comes soon."""
    deployment: MarketDeployment
    times: NetworkTimes
    uses: dict[str, MethodUse]
    client_version: str = ""
    """As the node calls itself."""


@asynccontextmanager
async def _open_chain(settings: ValidatorSettings, clock: Clock) -> AsyncIterator[ChainAccess]:
    file = read_deployment_file(settings.contracts)
    transport, uses = HttpTransport(settings.chain_url), dict[str, MethodUse]()
    is_plain = settings.chain_url.startswith("http://")  # then it is on loopback
    poll_transport = LoopbackTransport(settings.chain_url) if is_plain else transport
    try:
        client = EvmClient(MeteredRpcClient(transport, clock, uses=uses))
        polling = EvmClient(MeteredRpcClient(poll_transport, clock, tries=1, uses=uses))
        deployment = await open_deployment(client, file)
        times, version = await read_times(client, deployment.contracts), await client.client_version()
        yield ChainAccess(client, polling, deployment, times, uses, version)
    finally:
        await poll_transport.close()
        await transport.close()


def _open_vote_key(
    settings: ValidatorSettings, deployment: MarketDeployment, rng: Rng
) -> tuple[SigningKey, SignedFile]:
    """Raises StartupError."""
    identity, manager = deployment.identity, deployment.task_manager
    is_watched = settings.retire_unusable_key and deployment.is_local
    renew = settings.new_vote_key or (
        is_watched and not is_usable(settings.data, identity=identity, task_manager=manager)
    )
    return open_vote_key(settings.data, identity=identity, task_manager=manager, rng=rng, renew=renew)


def operator_key(settings: ValidatorSettings, *, is_local: bool, rng: Rng) -> SigningKey:
    """Raises StartupError."""
    path = settings.operator_key or settings.data / OPERATOR_KEY_FILE
    return read_or_create_key(path, rng=rng) if is_local else read_key(path)


def stake_of(usd: str) -> int:
    """In µUSD. Raises InvalidAmount."""
    return parse_usd(usd) // NANO_PER_UUSD


class Validator:
    """All parts of one validator, wired. Also what its operator sees of it."""

    def __init__(
        self,
        settings: ValidatorSettings,
        chain: ChainAccess,
        operator: SigningKey,
        vote_key: SigningKey,
        signed: SignedFile,
        *,
        clock: Clock,
        rng: Rng,
    ) -> None:
        self._settings, self._chain, self._clock = settings, chain, clock
        self._vote_key, self._operator, self._signed = vote_key, operator, signed
        self._run_id = rng.randbytes(8).hex()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._url = ""
        deployment, times = chain.deployment, chain.times
        timing = self._timing()
        self._follower = MarketFollower(chain.polling, deployment, clock, settings.depth)
        self._sender = TransactionSender(chain.client, operator, deployment.identity.chain_id, clock)
        self._submitter = CertificateSubmitter(
            self._sender, deployment.contracts, lambda: self._follower.view.latest, clock
        )
        self._reporter = FaultReporter(
            vote_key.address,
            deployment.domain,
            deployment.contracts,
            lambda: self._follower.view.latest,
            self._submitter.submit_proof,
            self._fetch_records,
            clock,
            LOCAL_RANK_S if deployment.is_local else PUBLIC_RANK_S,
        )
        self._transport = StrangerClient(settings.dial_rules, per_host_max=REQUESTS_PER_PEER)
        self._peers = PeerNetwork(
            self._transport,
            own_operator=operator.address,
            rules=settings.dial_rules,
            on_reply=self._take_reply,
            sign_body=self._sign_body,
        )
        retired = retired_keys(settings.data)
        membership = Membership(chain.client, deployment, self._sender, clock)
        self._registration = Registration(membership, vote_key, retired, clock)
        self._snapshots = self._make_snapshots(timing, rng)
        self._records = RecordFiles(settings.data / RECORDS_FOLDER)
        self._matches = self._make_matches(timing)
        self._outages = self._make_outages(timing)
        self._books = BookService(
            retired | {vote_key.address.lower()}, self._records.read, self._submitter.submit_book, times.book_s, clock
        )
        self._follower.listeners = (self, self._snapshots, self._matches, self._outages)
        self._follower.on_events = self._books.on_events
        api = ValidatorApi(self._matches, self._snapshots, self._outages, self, self._follower.look_soon)
        self._server = BoundedServer(api.handle, clock=clock, large_body_sender=self._large_body_sender)

    @property
    def _beat_ms(self) -> int:
        usual_s = LOCAL_BEAT_S if self._chain.deployment.is_local else PUBLIC_BEAT_S
        return int((self._settings.beat_s or usual_s) * 1000)

    def _make_outages(self, timing: MatchTiming) -> OutageHost:
        chain = self._chain
        return OutageHost(
            key=self._vote_key,
            domain=chain.deployment.domain,
            attempt_s=chain.times.attempt_s,
            beat_ms=self._beat_ms,
            submit_step_ms=timing.submit_step_ms,
            signed=self._signed,
            beats=self._snapshots.heard,
            sight=self._follower,
            answers=lambda: {peer.vote_key: peer.sent for peer in self._peers.peers()},
            send=self._send,
            submit=self._submit_outage,
            fail=self._fail,
            clock=self._clock,
        )

    def _make_snapshots(self, timing: MatchTiming, rng: Rng) -> SnapshotHost:
        chain = self._chain
        return SnapshotHost(
            key=self._vote_key,
            domain=chain.deployment.domain,
            timing=timing,
            spacing_s=chain.times.snapshot_spacing_s,
            evidence_s=chain.times.evidence_s,
            beat_ms=self._beat_ms,
            signed=self._signed,
            books=BookFiles(self._settings.data / "snapshots"),
            heartbeats_path=self._settings.data / "heartbeats.json",
            send=self._send,
            submit=self._submit_snapshot,
            fail=self._fail,
            on_tables=self._take_tables,
            on_fault=self._take_snapshot_fault,
            times=self._follower,
            clock=self._clock,
            rng=rng,
        )

    def _make_matches(self, timing: MatchTiming) -> MatchHost:
        chain = self._chain
        return MatchHost(
            key=self._vote_key,
            domain=chain.deployment.domain,
            timing=timing,
            signed=self._signed,
            tables=self._snapshots,
            records=self._records,
            send=self._send,
            submit=self._submit_match,
            fail=self._fail,
            on_ended=self._take_ended_match,
            chain_unix_s=self._follower.chain_unix_s,
            attempt_s=chain.times.attempt_s,
            evidence_s=chain.times.evidence_s,
            clock=self._clock,
            run_id=self._run_id,
        )

    async def run(self, stop: asyncio.Event, *, stake_uusd: int | None) -> None:
        """Until `stop` is set, or a part fails; then its error is raised."""
        tasks: list[asyncio.Future[Any]] = []
        try:
            await self._registration.require_alone(self._transport)
            port = await self._listen()
            self._url = self._settings.url(port)
            write_private(self._settings.data / URL_FILE, self._settings.url(port).encode())
            await self._sync(stop)
            self._tell_ready(port)
            tasks = [asyncio.ensure_future(stop.wait()), self._failed]
            tasks.append(asyncio.ensure_future(self._follower.run(poll_s=self._poll_s)))
            register = self._registration
            joins = register.join(url=self._url, stake_uusd=stake_uusd) if stake_uusd is not None else register.renew()
            tasks.append(asyncio.ensure_future(joins))
            await self._until_stopped(stop, tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._close()

    # for the follower

    def on_chain(self, view: ChainView, events: Sequence[ChainEvent], *, is_whole: bool) -> None:
        """Before the hosts are told: they may send at once."""
        if is_whole or any(event.contract == "stake_registry" for event in events):
            self._peers.follow(view.latest)

    # for the API

    def status(self) -> ValidatorStatus:
        state, own = self._follower.view.latest, self._record()
        counts, submitted = self._matches.counts, self._submitter.counts
        weights = {each.vote_key: each.weight for each in state.weights_at(state.stake_version)}
        identity = self._chain.deployment.identity
        return ValidatorStatus(
            operator=self._operator.address,
            vote_key=self._vote_key.address,
            registered_vote_key=own.vote_key,
            chain_id=identity.chain_id,
            genesis_hash="0x" + identity.genesis_hash.hex(),
            task_manager=self._chain.deployment.task_manager,
            url=own.url,
            block_number=self._follower.block_number,
            is_syncing=not self._follower.is_synced,
            stake_uusd=own.stake_uusd,
            pending_uusd=own.pending_uusd,
            unbonding_uusd=own.unbonding_uusd,
            weight=weights.get(self._vote_key.address, 0),
            total_weight=sum(weights.values()),
            validators=len(weights),
            is_jailed=own.is_jailed,
            snapshot_epoch=self._snapshots.epoch,
            open_matches=self._matches.open_count,
            votes_cast=counts.votes_cast,
            certificates_seen=counts.certificates_seen,
            certificates_signed=counts.certificates_signed,
            certificates_submitted=submitted.accepted,
            rounds_missed=counts.rounds_missed,
            messages_refused=counts.messages_refused,
            heard_providers=self._snapshots.heard_count(),
            peers=self._peer_statuses(weights),
            run_id=self._run_id,
            version=__version__,
        )

    def health(self) -> Health:
        own, state = self._record(), self._follower.view.latest
        if self._follower.is_away or own.is_jailed:
            return Health.DOWN
        weight = state.weight_of(self._vote_key.address, state.stake_version)
        is_working = self._follower.is_synced and weight is not None and weight.weight > 0
        return Health.OK if is_working and self._hears_quorum() else Health.SYNCING

    def services(self) -> list[EigenService]:
        follower = self._follower
        chain: ServiceStatus = "Down" if follower.is_away else "Up" if follower.is_synced else "Initializing"
        peers: ServiceStatus = "Up" if self._hears_quorum() else "Down" if follower.is_synced else "Initializing"
        return [
            EigenService(id="chain", name="Chain", description="The chain's JSON-RPC node", status=chain),
            EigenService(id="peers", name="Peers", description="More than 2/3 of the stake is reached", status=peers),
        ]

    def metrics(self) -> bytes:
        counts = self._matches.counts
        score = 100 * counts.certificates_signed / counts.certificates_weighed if counts.certificates_weighed else 100
        is_healthy = self.health() is Health.OK
        rpc = RpcUse(self._chain.client_version, self._chain.uses)
        return metrics_page(self.status(), rpc, is_healthy=is_healthy, score=score)

    # internals

    async def _listen(self) -> int:
        settings = self._settings
        try:
            return await self._server.start(settings.host, settings.port, tls=settings.tls())
        except OSError as error:
            raise StartupError(
                f"Cannot listen on {settings.host}:{settings.port}: {error.strerror}. Choose another --port."
            ) from None

    async def _sync(self, stop: asyncio.Event) -> None:
        """Until the chain is read up to its head. Raises WrongChain, ContractsOutdated."""
        await self._follower.look()
        while not self._follower.is_synced and not stop.is_set():
            await sleep_until(self._clock, self._clock.now_s() + self._settings.poll_s)
            await self._follower.look()

    def _tell_ready(self, port: int) -> None:
        _log.info("validator_started", url=self._url, vote_key=self._vote_key.address, operator=self._operator.address)
        if self._settings.ready_file is not None:
            ready = {
                "url": self._settings.url(port),
                "port": port,
                "pid": os.getpid(),
                "operator": self._operator.address,
                "vote_key": self._vote_key.address,
            }
            write_private(self._settings.ready_file, msgspec.json.encode(ready))

    async def _until_stopped(self, stop: asyncio.Event, tasks: Sequence[asyncio.Future[Any]]) -> None:
        waiting = set(tasks)
        while waiting and not stop.is_set():
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # the registration ends by itself; a failure of any part ends the process

    async def _close(self) -> None:
        self._matches.close()
        await self._reporter.close()
        self._books.close()
        self._snapshots.close()
        self._outages.close()
        await self._server.close()
        await self._submitter.close()
        await self._peers.close()
        await self._transport.close()

    def _timing(self) -> MatchTiming:
        is_local = (
            self._chain.deployment.is_local if self._settings.timing is None else self._settings.timing == "local"
        )
        return MatchTiming() if is_local else PUBLIC_TIMING

    def _poll_s(self) -> float:
        return min(BUSY_POLL_S, self._settings.poll_s) if self._matches.open_count else self._settings.poll_s

    def _send(self, vote_keys: Sequence[str], path: str, body: bytes) -> None:
        self._peers.send(vote_keys, path, body)

    def _submit_match(self, certificate: QuorumCertificate) -> None:
        self._submitter.submit_match(certificate)

    def _submit_snapshot(self, certificate: SnapshotCertificate) -> None:
        self._submitter.submit_snapshot(certificate)

    def _submit_outage(self, certificate: DownCertificate) -> None:
        self._submitter.submit_outage(certificate)

    def _take_tables(self) -> None:
        self._matches.on_tables()

    async def _fetch_records(self, order_id: str, attempt: int) -> list[AuctionRecord]:
        urls = [peer.url for peer in self._peers.peers() if peer.url]
        return await peer_records(self._transport, urls, order_id, attempt)

    def _take_ended_match(self, record: AuctionRecord) -> None:
        if self._settings.challenges:
            self._reporter.on_match_ended(record)

    def _take_snapshot_fault(self, fault: SnapshotDoubleSign) -> None:
        if self._settings.challenges:
            self._reporter.on_double_snapshot(fault)

    def _fail(self, error: Exception) -> None:
        """Something without which nothing may be signed: the process ends with it."""
        if not self._failed.done():
            self._failed.set_exception(StartupError(f"This validator stopped itself: {error}."))

    def _sign_body(self, body: bytes, receiver: str) -> Mapping[str, str]:
        return sign_body(body, key=self._vote_key, receiver=receiver, domain=self._chain.deployment.domain)

    def _large_body_sender(self, headers: Mapping[str, str]) -> SignedBody | None:
        """A validator that counts in the newest stake version, or in a match that is open here."""
        domain = self._chain.deployment.domain
        signed = read_body_signature(headers, receiver=self._vote_key.address, domain=domain)
        if signed is None:
            return None
        state = self._follower.view.latest
        newest = state.weight_of(signed.sender, state.stake_version)
        counts = (newest is not None and newest.weight > 0) or self._matches.has_voter(signed.sender)
        return signed if counts else None

    def _take_reply(self, path: str, body: bytes) -> None:
        """A message in another validator's reply is as good as one that it sends itself."""
        with contextlib.suppress(InvalidField):
            if path == MESSAGES_PATH:
                self._matches.receive(decode_message(body))
            elif path == OUTAGE_MESSAGES_PATH:
                self._outages.receive(decode_outage_message(body))
            else:
                self._snapshots.receive(decode_snapshot_message(body))

    def _record(self) -> ValidatorRecord:
        own = self._operator.address
        return self._follower.view.latest.validators.get(own, ValidatorRecord(operator=own, vote_key=""))

    def _peer_statuses(self, weights: dict[str, int]) -> list[PeerStatus]:
        validators = self._follower.view.latest.validators
        return [
            PeerStatus(
                vote_key=validators[peer.operator].vote_key,
                operator=peer.operator,
                url=validators[peer.operator].url,
                weight=weights.get(validators[peer.operator].vote_key, 0),
                is_reachable=peer.is_reachable,
                queued=len(peer.queue),
                dropped=peer.dropped,
            )
            for peer in self._peers.peers()
            if peer.operator in validators
        ]

    def _hears_quorum(self) -> bool:
        state = self._follower.view.latest
        total = reached = 0
        for each in state.weights_at(state.stake_version):
            peer = self._peers.peer_of(each.vote_key)
            is_up = each.vote_key == self._vote_key.address or (peer is not None and peer.failures == 0)
            total, reached = total + each.weight, reached + each.weight * is_up
        return is_quorum(reached, total=total)
