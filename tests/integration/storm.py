"""Simulated jobs through the real ledger, journal, metering, receipts and Postgres, with faults by seed.

Time is virtual, money is real. Two gateways share the books; nodes die before and after tokens, clients go away,
gateways are killed and come back, Postgres is away or its replies get lost, disks fill up, receipts come twice, forged
and swollen. A small model keeps its own accounts and knows how every job must have ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter, defaultdict
from pathlib import Path

import msgspec

from sparewatt.core.errors import InsufficientCredits, StoreUnavailable
from sparewatt.core.ids import AccountId, KeyId, MatchId, ModelId, NodeId
from sparewatt.core.money import NANO_PER_USD, Nano
from sparewatt.core.rng import seeded
from sparewatt.inference.dispatch.model import AttemptRecord, DeliveryCount, Outcome
from sparewatt.inference.metering.receipt_intake import ReceiptIntake
from sparewatt.inference.metering.service import Metering, Payer, Quote, RunningTab
from sparewatt.ledger import rules
from sparewatt.ledger.budgets import KeyBudgets
from sparewatt.ledger.journal import read_journal, unsettled_jobs
from sparewatt.ledger.ledger import Ledger
from sparewatt.ledger.model import TokenPrice
from sparewatt.protocol.link.receipts import (
    Countersignature,
    Receipt,
    SignedReceipt,
    SignedReceipts,
    SignedSheet,
    sheet_digest,
)
from sparewatt.protocol.signing import SigningKey
from sparewatt.store.connection_pool import ConnectionPool
from sparewatt.store.ledger import Transfer
from sparewatt.testing.clocks import ManualClock
from tests.integration.storm_faults import FAULTS, ChaoticBooks, ChaoticJournal
from tests.integration.storm_jobs import Ending, SimJob
from tests.unit.inference.nodes import a_call, a_job

STEP_S = 0.1
FLUSH_STEPS, TEND_STEPS, EXPIRY_STEPS = 10, 50, 100
PRICES = [TokenPrice(Nano(1_000_000_000), Nano(3_000_000_000)), TokenPrice(Nano(333_333_333), Nano(7_777_777_777))]
CAP = TokenPrice(Nano(1_000_000_000), Nano(7_777_777_777))
MODEL = ModelId("stub")


class Gateway:
    """One process. Killed by dropping it; what it had written stays."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.directory = world.directory / name
        self.directory.mkdir(exist_ok=True)
        self.left = unsettled_jobs(read_journal(self.directory), now_unix_s=world.clock.unix_s())
        self.journal = ChaoticJournal(self.directory)
        self.ledger = Ledger(world.books, self.journal, instance=name, clock=world.clock)
        self.desk = ReceiptIntake(world.books, world.gateway_key, clock=world.clock, send=world.on_countersigned)
        self.metering = Metering(self.ledger, self.desk, KeyBudgets(world.books, clock=world.clock), clock=world.clock)
        self.jobs: dict[MatchId, SimJob] = {}
        self.is_up = False

    async def come_up(self) -> None:
        try:
            await self.ledger.recover(self.left)
        except StoreUnavailable:
            return
        self.is_up = True

    async def tend(self, step: int) -> None:
        """What a gateway does in the background."""
        with contextlib.suppress(StoreUnavailable):
            if step % FLUSH_STEPS == 0:
                await self.metering.note_progress()
                for job in self.jobs.values():
                    job.noted = max(job.noted, job.worth())
                await self.ledger.flush()
                await self.desk.settle()
            if step % TEND_STEPS == 0:
                await self.ledger.rebalance_purses()

    async def die_while_posting(self, turns: int) -> None:
        posting = asyncio.create_task(self.ledger.flush())
        for _ in range(turns):
            await asyncio.sleep(0)
        posting.cancel()
        await asyncio.gather(posting, return_exceptions=True)


class World:
    def __init__(self, pool: ConnectionPool, directory: Path, *, seed: int, arrivals: int = 8) -> None:
        """`arrivals`: jobs per step, which is a tenth of a second."""
        self.arrivals = arrivals
        self.rng = random.Random(seed)  # noqa: S311
        self.clock = ManualClock(unix_s=1_704_067_170.0)  # half a minute before a month ends
        self.counts: Counter[str] = Counter()
        self.books = ChaoticBooks(pool, self.rng, self.counts)
        self.directory = directory
        self.gateway_key = SigningKey.generate(rng=seeded(seed))
        self.nodes = [SigningKey.generate(rng=seeded(1000 + n)) for n in range(6)]
        self.owner_of = {NodeId(k.address): AccountId(f"acc_owner_{n % 4}") for n, k in enumerate(self.nodes)}
        self.price_of = {NodeId(k.address): PRICES[n % 2] for n, k in enumerate(self.nodes)}
        self.key_of = {NodeId(k.address): k for k in self.nodes}
        self.accounts = [AccountId(f"acc_{n}") for n in range(40)]
        self.given: dict[str, int] = defaultdict(int)
        """What transfers brought, by account of the ledger."""
        self.jobs: dict[MatchId, SimJob] = {}
        self.honest: set[tuple[str, str]] = set()
        self.swollen: set[tuple[str, str]] = set()
        self.unsent: list[tuple[Gateway, NodeId, SignedReceipts]] = []
        self.confirmed: set[bytes] = set()
        self.gateways: list[Gateway] = []
        self._away_until = 0
        self._asked = 0

    # money from outside

    async def transfer(
        self, cause: str, kind: str, account: AccountId, nano: int, *, life_s: float | None = None
    ) -> None:
        make = {"grant": rules.grant_postings, "deposit": rules.deposit_postings, "expiry": rules.expiry_postings}[kind]
        lines = tuple(make(account, Nano(nano)))
        now = self.clock.unix_s()
        ends = None if life_s is None else now + life_s
        if await self.books.post_transfer(Transfer(cause, kind, account, Nano(nano), lines, now, ends)):
            self.counts[f"transfers: {kind}"] += 1
            for name, gained in lines:
                self.given[name] += gained

    async def give(self, cause: str, account: AccountId) -> None:
        """Twice, as a client that got no answer would."""
        for _ in range(2):
            if self.rng.random() < 0.5:
                await self.transfer(cause, "grant", account, self.rng.randrange(1, NANO_PER_USD // 20), life_s=20)
            else:
                await self.transfer(cause, "deposit", account, self.rng.randrange(1, NANO_PER_USD))

    async def expire(self, step: int) -> None:
        for name, balance, live, sliced in await self.books.promo_to_expire(now_unix_s=self.clock.unix_s()):
            nano = rules.expired_promo(balance, [live], reserved=sliced)
            account = AccountId(name.removeprefix("promo:"))
            with contextlib.suppress(InsufficientCredits):  # somebody has reserved it since
                await self.transfer(f"expiry:{name}:{step}", "expiry", account, nano)

    # the run

    async def run(self, n_jobs: int) -> None:
        for account in self.accounts:
            await self.give(f"first:{account}", account)
        self.gateways = [Gateway(self, f"g{n}") for n in range(2)]
        step = 0
        while len(self.jobs) < n_jobs:
            step += 1
            self._weather(step)
            await self._arrive(min(self.arrivals, n_jobs - len(self.jobs)))
            await self._tick(step)
        await self._end(step)

    async def _tick(self, step: int) -> None:
        self.clock.advance(STEP_S)
        for at, gateway in enumerate(self.gateways):
            if not gateway.is_up:
                await gateway.come_up()
                continue
            for job in list(gateway.jobs.values()):
                self._progress(gateway, job)
            await gateway.tend(step)
            if self.rng.random() < 0.006:
                await self._kill(at)
        self._deliver_receipts()
        if step % 5 == 0:
            for n in range(-(-self.arrivals // 8)):
                await self.give(f"more:{step}:{n}", self.rng.choice(self.accounts))
        if step % EXPIRY_STEPS == 0:
            await self.expire(step)

    def _weather(self, step: int) -> None:
        if step >= self._away_until:
            self.books.is_away = self.rng.random() < 0.01
            self._away_until = step + (self.rng.randrange(5, 40) if self.books.is_away else 1)
            self.counts["times that Postgres was away"] += self.books.is_away
        for gateway in self.gateways:
            gateway.journal.is_full = self.rng.random() < 0.005

    async def _kill(self, at: int) -> None:
        old = self.gateways[at]
        self.counts["gateways killed"] += 1
        if self.rng.random() < 0.5:
            await old.die_while_posting(self.rng.randrange(60))
        for job in old.jobs.values():
            job.endings = [Ending("failed", job.noted)]
        old.journal.close()
        self.gateways[at] = Gateway(self, old.name)

    async def _end(self, step: int) -> None:
        """The storm is over: all jobs end, all gateways go down in order."""
        self.books.is_calm = True
        for gateway in self.gateways:
            gateway.journal.is_full = False
            if not gateway.is_up:
                await gateway.come_up()
        for _ in range(600):
            if not any(gateway.jobs for gateway in self.gateways):
                break
            step += 1
            self.clock.advance(STEP_S)
            for gateway in self.gateways:
                for job in list(gateway.jobs.values()):
                    self._progress(gateway, job)
        self._deliver_receipts()
        for gateway in self.gateways:
            while gateway.desk._ready or gateway.desk._checked:
                await gateway.desk.settle()
            await gateway.ledger.close_down()
            gateway.journal.close()

    # jobs

    async def _arrive(self, n: int) -> None:
        up = [gateway for gateway in self.gateways if gateway.is_up]
        if up:
            self._asked += n
            names = [f"match_{self._asked - at}" for at in range(n)]
            await asyncio.gather(*(self._ask(self.rng.choice(up), name) for name in names))

    async def _ask(self, gateway: Gateway, name: str) -> None:
        account = self.accounts[min(int(self.rng.expovariate(0.1)), len(self.accounts) - 1)]
        limit = self.rng.choice([None, 1, 40, 200])
        prompt = self.rng.randrange(1, 400)
        match = a_job(id=MatchId(name), model=MODEL, prompt_tokens=prompt)
        order = Quote(match, a_call(model=MODEL, output_limit=limit, stream=True), CAP)
        try:
            tab = await gateway.metering.open(Payer(account, KeyId(f"key_{account}")), order)
        except (InsufficientCredits, StoreUnavailable) as error:
            self.counts[f"refused: {error.code}"] += 1
            return
        try:
            tab.start()
        except StoreUnavailable:
            tab.drop()
            self.counts["refused: journal full"] += 1
            return
        self._begin(gateway, order, account, tab)

    def _begin(self, gateway: Gateway, order: Quote, account: AccountId, tab: RunningTab) -> None:
        length = min(tab.output_limit, self.rng.randrange(1, 150))
        job = SimJob(order.match.id, account, order.match.prompt_tokens, length, tab, bound=tab.output_limit)
        if self.rng.random() < FAULTS:
            kinds = ["early death", "late death", "moved on", "disconnect", "silence", "closed twice", "cheat"]
            job.fault = self.rng.choice(kinds)
            job.fault_at = self.rng.randrange(length)
            self.counts[f"fault: {job.fault}"] += 1
        tab.watch(job.attempts)
        self._send(job)
        self.jobs[job.id] = gateway.jobs[job.id] = job

    def _send(self, job: SimJob) -> None:
        tried = {attempt.node_id for attempt in job.attempts}
        node_id = self.rng.choice([node_id for node_id in self.owner_of if node_id not in tried])
        price = self.price_of[node_id]
        record = AttemptRecord(node_id, started_ms=0.0, owner=self.owner_of[node_id])
        record.prompt_price_nano, record.completion_price_nano = price.prompt, price.completion
        job.attempts.append(record)

    def _progress(self, gateway: Gateway, job: SimJob) -> None:
        attempt = job.attempts[-1]
        written = sum(a.delivered.chunks for a in job.attempts if a.delivered)
        more = min(self.rng.randrange(60), job.length - written)
        if job.fault in ("early death", "silence") and len(job.attempts) == 1:
            attempt.outcome = Outcome.FAILED
            if job.fault == "silence":
                self._finish(gateway, job, Outcome.FAILED)
            else:
                self._send(job)
            return
        if more:
            attempt.delivered = attempt.delivered or DeliveryCount()
            attempt.delivered.chunks += more
            attempt.delivered.text_bytes += 4 * more
        self._go_on(gateway, job, written + more)

    def _go_on(self, gateway: Gateway, job: SimJob, written: int) -> None:
        attempt = job.attempts[-1]
        if job.fault == "moved on" and len(job.attempts) == 1 and written > job.fault_at and written < job.length:
            attempt.outcome = Outcome.FAILED
            self._send(job)
        elif job.fault == "late death" and written > job.fault_at:
            attempt.outcome = Outcome.FAILED
            self._finish(gateway, job, Outcome.FAILED)
        elif job.fault == "disconnect" and written >= job.fault_at:
            attempt.outcome = Outcome.CANCELLED
            self._finish(gateway, job, Outcome.CANCELLED)
        elif written >= job.length:
            self._count(job, attempt)
            attempt.outcome = Outcome.DONE
            self._finish(gateway, job, Outcome.DONE)

    def _count(self, job: SimJob, attempt: AttemptRecord) -> None:
        if attempt.delivered is not None and self.rng.random() < 0.9:
            attempt.delivered.prompt_tokens = self.rng.randrange(2 * job.prompt + 100)
            attempt.delivered.completion_tokens = attempt.delivered.chunks * (20 if job.fault == "cheat" else 1)

    def _finish(self, gateway: Gateway, job: SimJob, outcome: Outcome) -> None:
        job.tab.close(outcome, job.attempts)
        if job.fault == "closed twice":
            job.tab.close(Outcome.FAILED, job.attempts)
        job.endings = [Ending(outcome.value, job.worth())]
        if gateway.journal.is_full:  # a crash before it is posted settles it at its last known count
            job.endings.append(Ending("failed", job.noted))
        del gateway.jobs[job.id]
        for attempt in job.attempts:
            if attempt.delivered is not None:
                self._sign(gateway, job, attempt)

    # receipts

    def _sign(self, gateway: Gateway, job: SimJob, attempt: AttemptRecord) -> None:
        key = self.key_of[attempt.node_id]
        seen = attempt.delivered or DeliveryCount()
        said = seen.chunks if seen.completion_tokens is None else seen.completion_tokens
        receipt = Receipt(job.id, key.address, MODEL, job.prompt, said, 1, 2)
        signed = self._signed(receipt, key)
        copies = [(attempt.node_id, signed)]
        if self.rng.random() < FAULTS:
            copies = self._mischief(job, attempt.node_id, signed)
        if copies[0][1] is signed:
            self.honest.add((job.id, attempt.node_id))
            if said > seen.text_bytes * 1.1 + 8:
                self.swollen.add((job.id, attempt.node_id))
        self.unsent += [(gateway, node_id, each) for node_id, each in copies]

    def _signed(self, receipt: Receipt, key: SigningKey) -> SignedReceipts:
        """Alone, or on a sheet with another that belongs to no job."""
        if self.rng.random() < 0.5:
            return SignedReceipt(receipt, key.sign(receipt.typed_digest()).hex())
        idle = msgspec.structs.replace(receipt, job=f"{receipt.job}-none")
        digests = [receipt.digest(), idle.digest()]
        return SignedSheet([receipt, idle], key.sign(sheet_digest(receipt.node, digests)).hex())

    def _mischief(self, job: SimJob, node_id: NodeId, signed: SignedReceipts) -> list[tuple[NodeId, SignedReceipts]]:
        kind = self.rng.choice(["twice", "forged", "foreign", "other job", "changed"])
        self.counts[f"receipts: {kind}"] += 1
        stranger = self.rng.choice([n for n in self.owner_of if n != node_id])
        more = Receipt(job.id, node_id, MODEL, job.prompt, 10**6, 1, 2)
        match kind:
            case "forged":
                return [(node_id, self._signed(signed.receipts[0], self.key_of[stranger]))]
            case "foreign":
                return [(node_id, signed), (stranger, signed)]
            case "other job":
                other = Receipt(f"{job.id}x", node_id, MODEL, 1, 5, 1, 2)
                return [(node_id, signed), (node_id, self._signed(other, self.key_of[node_id]))]
            case "changed":
                return [(node_id, signed), (node_id, self._signed(more, self.key_of[node_id]))]
            case _:
                return [(node_id, signed)] * 3

    def _deliver_receipts(self) -> None:
        for gateway, node_id, signed in self.unsent:
            gateway.desk.on_receipt(node_id, signed)
        self.unsent.clear()

    def on_countersigned(self, node_id: NodeId, message: Countersignature) -> None:
        assert message.node == node_id
        self.confirmed |= {bytes.fromhex(digest) for digest in message.digests}
