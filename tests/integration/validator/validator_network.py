"""Validators as real processes around a real chain, and bidders that speak to them over HTTP as nodes do."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from sparewatt.evm.log_reader import BlockBatch, LogReader
from sparewatt.market.match.model import BidderContext, BidState
from sparewatt.market.match.provider_match import ProviderMatch
from sparewatt.market.quorum import leader_of_match
from sparewatt.market.rule import commit_of
from sparewatt.protocol.api.validators import (
    MESSAGES_PATH,
    STATUS_PATH,
    MatchProgress,
    MessageReply,
    ValidatorStatus,
    progress_path,
)
from sparewatt.protocol.contracts.match import Bid, BidTerms, OrderTerms, Specification, order_id_of
from sparewatt.protocol.contracts.match_messages import (
    MatchMessage,
    RevealedBid,
    SignedCommit,
    SignedCommitList,
    SignedRevealList,
    encode_message,
    read_object,
)
from sparewatt.protocol.signing import SigningKey
from sparewatt.protocol.typed_message import contract_domain, message_digest, struct_hash
from tests.integration.chain.market_scene import RENTER, MarketScene

POLL_S = 0.02
POLLS_MAX = 1_500
LEADER_TRIES = 1_000
STEPS_MAX = 10_000
SPECIFICATION = Specification(b"\x09" * 32, 1, 1_000, 1_024, 1_024, 0, 0)
PROMISE = BidTerms(1, 3, 24, 8_000, 32_000, 100_000, 0, 1, 0, 0, 3_600)


async def until(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    for _ in range(POLLS_MAX):
        if await holds():
            return
        await asyncio.sleep(POLL_S)
    raise AssertionError(f"it never came to it that {what}")


@dataclass
class ValidatorProcess:
    """One `sparewatt validator run`."""

    folder: Path
    chain_url: str
    contracts: Path
    options: Sequence[str] = ()
    module: str = "sparewatt"
    process: Process | None = None
    port: int = 0

    @property
    def ready_file(self) -> Path:
        return self.folder / "ready.json"

    @property
    def fault_file(self) -> Path:
        """Names the fault of a faulty validator."""
        return self.folder / "fault"

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text() if (self.folder / "log").exists() else ""

    async def start(self) -> None:
        self.folder.mkdir(exist_ok=True, mode=0o700)
        self.ready_file.unlink(missing_ok=True)
        with (self.folder / "log").open("ab") as log:
            env = {**os.environ, "FAULT_FILE": str(self.fault_file)}
            self.process = await asyncio.create_subprocess_exec(*self.argv(), stdout=log, stderr=log, env=env)

    def argv(self) -> list[str]:
        return [
            *(sys.executable, "-m", self.module, "validator", "run"),
            *("--data", str(self.folder / "data"), "--chain-url", self.chain_url, "--contracts", str(self.contracts)),
            *("--port", str(self.port), "--ready-file", str(self.ready_file), "--depth", "1"),
            *self.options,
        ]

    async def ready(self) -> dict[str, Any]:
        async def is_ready() -> bool:
            assert self.process is not None
            assert self.process.returncode is None, self.log[-3_000:]
            return self.ready_file.exists()

        await until(is_ready, "the validator is ready")
        found: dict[str, Any] = json.loads(self.ready_file.read_text())
        self.port = found["port"]
        return found

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def stop(self, sig: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(sig)
        return await asyncio.wait_for(self.process.wait(), 20)


@dataclass
class ValidatorNetwork:
    market: MarketScene
    validators: list[ValidatorProcess]
    session: aiohttp.ClientSession

    async def status(self, number: int = 0) -> ValidatorStatus:
        async with self.session.get(self.validators[number].url + STATUS_PATH) as reply:
            return msgspec.json.decode(await reply.read(), type=ValidatorStatus)

    async def until_weighed(self) -> None:
        """Every validator has weight, and the first snapshot is on the chain."""
        for number in range(len(self.validators)):

            async def is_working(number: int = number) -> bool:
                status = await self.status(number)
                return status.validators == len(self.validators) and status.snapshot_epoch > 0

            await until(is_working, f"validator {number} has weight and a snapshot")
        await self.market.follow()

    async def order(self, **changes: Any) -> tuple[str, int]:
        """An order's id and attempt."""
        order_id = await self.market.order(spec_hash=struct_hash(SPECIFICATION), **changes)
        return order_id, self.market.view.latest.orders[order_id].attempt

    def bidder(self, provider: SigningKey, node_key: SigningKey, *, order_id: str, price_uusd: int) -> Bidder:
        market = self.market
        order = market.view.latest.orders[order_id]
        weights = {each.vote_key: each.weight for each in market.view.latest.weights_at(order.stake_version)}
        domain = contract_domain(chain_id=market.chain_id, contract=market.contracts["task_manager"].address)
        raw_id = bytes.fromhex(order_id[2:])
        salt = os.urandom(32)
        bid = Bid(raw_id, order.attempt, provider.address, price_uusd, struct_hash(PROMISE), salt)
        commit = commit_of(bid)
        signed = SignedCommit(commit, node_key.sign(message_digest(domain, commit)))
        context = BidderContext(domain=domain, order_id=raw_id, attempt=order.attempt, weights=weights)
        urls = {each.vote_key: each.url for each in market.view.latest.validators.values()}
        match = ProviderMatch(context, RevealedBid(bid, PROMISE, SPECIFICATION), signed)
        return Bidder(match, urls, self.session)

    async def order_led_by(self, vote_key: str, *, terms: OrderTerms) -> tuple[str, int]:
        """An order whose first leader is this validator: its id follows from its duration, among other things."""
        market = self.market
        nonce = await market.read("deployment_order", "order_count", RENTER.address)
        weights = {each.vote_key: each.weight for each in market.view.latest.weights_at(self.stake_version)}
        for extra_s in range(LEADER_TRIES):
            wanted = replace(terms, duration_s=terms.duration_s + extra_s)
            order_id = order_id_of(
                chain_id=market.chain_id,
                orders=market.contracts["deployment_order"].address,
                renter=RENTER.address,
                renter_nonce=nonce,
                policy_hash=struct_hash(wanted),
                spec_hash=struct_hash(SPECIFICATION),
            )
            if leader_of_match(weights, order_id=order_id, attempt=0, round_=0) == vote_key:
                ordered, attempt = await self.order(terms=wanted)
                assert ordered == "0x" + order_id.hex()
                return ordered, attempt
        raise AssertionError(f"no order of {LEADER_TRIES} would be led by {vote_key}")

    @property
    def stake_version(self) -> int:
        return self.market.view.latest.stake_version

    async def certificates(self) -> Counter[tuple[str, int]]:
        """How many the chain has accepted, by order and attempt."""
        await self.market.follow()
        market = self.market
        reader = LogReader(market.client, market.contracts, market.reader.identity, market.start_block)
        found: Counter[tuple[str, int]] = Counter()
        for _ in range(STEPS_MAX):
            step = await reader.step()
            if step is None:
                return found
            for event in step.events if isinstance(step, BlockBatch) else ():
                if event.event in {"MatchAccepted", "NoMatch"}:
                    found[event.args["order_id"], event.args["attempt"]] += 1
        raise AssertionError("the chain does not come to an end")

    async def settled(self, order_id: str) -> None:
        """The chain has accepted a certificate for the order."""

        async def is_settled() -> bool:
            await self.market.follow()
            return self.market.view.latest.orders[order_id].state.name != "OPEN"

        await until(is_settled, "the order is matched or not")


@dataclass
class Bidder:
    """Drives a `ProviderMatch` as a node does."""

    match: ProviderMatch
    urls: Mapping[str, str]
    session: aiohttp.ClientSession
    codes: dict[str, list[int]] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def run(self) -> None:
        """Until the bid is acknowledged, or the test cancels it."""
        polls = [asyncio.create_task(self._listen(key)) for key in self.match.context.weights]
        try:
            self._send(self.match.start(self._now_ms()).send)
            while self.match.state is not BidState.REVEALED:
                await asyncio.sleep(0.02)
                self._send(self.match.tick(self._now_ms()).send)
        finally:
            for task in [*polls, *self._tasks]:
                task.cancel()
            await asyncio.gather(*polls, *self._tasks, return_exceptions=True)

    def _send(self, messages: Sequence[tuple[str, MatchMessage]]) -> None:
        for key, message in messages:
            task = asyncio.create_task(self._post(key, message))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _post(self, key: str, message: MatchMessage) -> None:
        try:
            async with self.session.post(self.urls[key] + MESSAGES_PATH, data=encode_message(message)) as reply:
                answer = msgspec.json.decode(await reply.read(), type=MessageReply)
        except (aiohttp.ClientError, OSError):
            return
        self.codes.setdefault(key, []).append(answer.code)
        if isinstance(message, SignedCommit):
            self.match.answered(key, answer.code)

    async def _listen(self, key: str) -> None:
        have = 0
        path = progress_path("0x" + self.match.context.order_id.hex(), self.match.context.attempt)
        while True:
            try:
                async with self.session.get(f"{self.urls[key]}{path}?have={have}&wait_ms=2000") as reply:
                    if reply.status != 200:
                        await asyncio.sleep(0.05)
                        continue
                    progress = msgspec.json.decode(await reply.read(), type=MatchProgress)
            except (aiohttp.ClientError, OSError):
                await asyncio.sleep(0.05)
                continue
            have = progress.version
            now_ms = self._now_ms()
            for each in progress.commit_lists:
                self._send(self.match.receive(read_object(SignedCommitList, each), now_ms=now_ms).send)
            for each in progress.reveal_lists:
                self._send(self.match.receive(read_object(SignedRevealList, each), now_ms=now_ms).send)

    def _now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)
