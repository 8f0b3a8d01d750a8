"""A walk of one account's money over the real contracts, with books in a real Postgres.

`python -m … URL DSN FOLDER` is the chain's process, killed (SIGKILL) at a random operation and started again, as often
as its stdin says. Each life is a fork: the imports are done once.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
from msgspec.structs import replace

from sparewatt.chain.client import ChainClient
from sparewatt.chain.contracts import DeploymentStep, shipped_plan
from sparewatt.chain.money.audit import ChainAuditor
from sparewatt.chain.money.settlement_contract import SETTLEMENT, TOKEN
from sparewatt.core.clock import SystemClock
from sparewatt.core.ids import NodeId
from sparewatt.core.money import Nano
from sparewatt.leasing.lease_requests import LeaseRequestService
from sparewatt.ledger.chain_credits import ChainCreditService
from sparewatt.ledger.credits import CreditService
from sparewatt.ledger.deposit_adapters import ConfirmedDeposit, deposit_request
from sparewatt.ledger.pockets import exit_hold_id
from sparewatt.localnet.anvil import Anvil
from sparewatt.protocol.api.ledger import ChainAudit
from sparewatt.protocol.contracts.match import ReputationSnapshot
from sparewatt.protocol.contracts.meta_transactions import VoteKey
from sparewatt.protocol.signing import SigningKey
from sparewatt.protocol.typed_message import contract_domain, message_digest
from sparewatt.store.chain_requests import ChainRequestRow, ChainRequestState, NewChainRequest
from sparewatt.store.connection_pool import ConnectionPool
from sparewatt.store.credit_holds import EXIT, REQUEST, CreditHoldRow
from sparewatt.store.request_params import (
    ALL_CONTRACTS,
    ChainRequestKind,
    ExitParams,
    OrderParams,
    ProviderParams,
    WithdrawParams,
)
from tests.integration.chain.settling import CUSTODY, DEPTH, OWNER, ROUNDS_MAX, USER, Settling, open_settling
from tests.integration.money.samples import RULES, delivery, job, settle
from tests.order_terms import order_terms

DOLLAR, DOLLAR_MICRO = Nano(10**9), 10**6
ROOT_DELAY_S, EXIT_S, BOOK_S, UNBOND_S = 20, 200, 60, 3_600
STAKER, VOTER = SigningKey(bytes(31) + b"\x31"), SigningKey(bytes(31) + b"\x32")
STAKE = 100 * DOLLAR_MICRO
RECEIVER = "0x" + "5e" * 20
NODE = NodeId("0x" + "77" * 20)
OPERATIONS_MAX = 150
"""Of one life: reads and writes of the database, and requests to the chain's node."""
TERMS = order_terms()


def quick_plan(*, root_delay_s: int = ROOT_DELAY_S) -> list[DeploymentStep]:
    """The shipped plan with a delay of roots, and exits that take minutes."""
    times = (root_delay_s, EXIT_S, BOOK_S)
    return [
        replace(step, args=(*step.args[:-3], *times)) if step.create == "settlement" else step
        for step in shipped_plan()
    ]


@dataclass(slots=True)
class Bookkeeping:
    settling: Settling
    kill: Callable[[], Awaitable[None]] | None = None
    """What happens to the chain's process while a request is under way."""

    @property
    def address(self) -> str:
        return self.settling.addresses[USER]

    @property
    def is_test_money(self) -> bool:
        return self.settling.worker.roots.test_money

    @property
    def service(self) -> ChainCreditService:
        return ChainCreditService(self.settling.database, SystemClock())

    # requests

    async def until_ended(self, request_id: str, *, pass_s: int = 0) -> ChainRequestRow:
        """`pass_s`: how much chain time passes with each look."""
        if self.kill is not None:
            await self.kill()

        async def has_ended() -> bool:
            await self.execute("UPDATE chain_requests SET due_at = now() WHERE due_at > now()")
            if pass_s:
                await self.pass_time(pass_s)
            row = await self.settling.database.chain_requests.find(request_id)
            return row is not None and row.state in {ChainRequestState.DONE, ChainRequestState.FAILED}

        await self.settling.until(has_ended, f"{request_id} has no end")
        row = await self.settling.database.chain_requests.find(request_id)
        assert row is not None
        return row

    async def done(self, new: NewChainRequest) -> ChainRequestRow:
        await self.settling.database.chain_requests.insert(new)
        row = await self.until_ended(new.id)
        assert row.state is ChainRequestState.DONE, row.reason
        return row

    async def deposit(self, usd: int, reference: str) -> None:
        await self.done(deposit_request(USER, address=self.address, reference=reference, nano=Nano(usd * DOLLAR)))

    @property
    def leases(self) -> LeaseRequestService:
        return LeaseRequestService(
            self.settling.database, SystemClock(), is_test_money=self.is_test_money, free_idle_slices=None
        )

    async def order_params(self) -> OrderParams:
        return OrderParams(TERMS, "0x" + "01" * 32, (await self.settling.client.head()).unix_s + 86_400, 2)

    async def order(self, usd: int, reference: str) -> str:
        """Returns the order's id."""
        asked = await self.order_params()
        row = await self.leases.order(USER, asked, deposit_micro=usd * DOLLAR_MICRO, reference=reference)
        row = await self.until_ended(row.id)
        assert row.state is ChainRequestState.DONE, row.reason
        return str(row.result["order_id"])

    async def cancel(self, order_id: str, reference: str) -> None:
        row = await self.leases.act(USER, ChainRequestKind.CANCEL, order_id, reference=reference)
        row = await self.until_ended(row.id)
        assert row.state is ChainRequestState.DONE, row.reason

    async def hold_bond(self, usd: int, provider: str, reference: str) -> NewChainRequest:
        params = ProviderParams(provider=provider)
        new = NewChainRequest(
            f"bond:{reference}", ChainRequestKind.BOND, USER, self.address, usd * DOLLAR_MICRO, params
        )
        hold = CreditHoldRow(new.id, REQUEST, USER, self.address)
        holds = self.settling.database.credit_holds
        assert await holds.hold(hold, with_promo=self.is_test_money, nano=usd * DOLLAR) is not None
        return new

    async def bond(self, usd: int, provider: str, reference: str) -> None:
        await self.done(await self.hold_bond(usd, provider, reference))

    async def unbond(self, usd: int, provider: str, reference: str) -> None:
        params = ProviderParams(provider=provider)
        new = NewChainRequest(
            f"unbond:{reference}", ChainRequestKind.UNBOND, USER, provider, usd * DOLLAR_MICRO, params
        )
        await self.settling.database.chain_requests.insert(new)

        async def is_unbonding() -> bool:
            row = await self.settling.database.chain_requests.find(new.id)
            return row is not None and row.step > 0

        await self.settling.until(is_unbonding, "nothing unbonds")
        row = await self.until_ended(new.id, pass_s=UNBOND_S // 4)
        assert row.state is ChainRequestState.DONE, row.reason
        await self.until_ended(f"deposit:{new.id}")

    async def collect(self, reference: str) -> None:
        new = NewChainRequest(
            f"withdraw:{reference}", ChainRequestKind.WITHDRAW, USER, self.address, params=WithdrawParams(ALL_CONTRACTS)
        )
        await self.done(new)

    async def ask_exit(self, usd: int, reference: str, *, receiver: str | None = None) -> str:
        """As `ChainCreditService.withdraw` does it, until the contract has it."""
        database, request_id = self.settling.database, f"exit:{reference}"
        hold = CreditHoldRow(exit_hold_id(self.address), EXIT, USER, self.address)
        assert await database.credit_holds.hold(hold, with_promo=False, nano=usd * DOLLAR) is not None
        await database.chain_requests.insert(
            NewChainRequest(
                request_id, ChainRequestKind.EXIT, USER, self.address, usd * DOLLAR_MICRO, ExitParams(receiver)
            )
        )
        if self.kill is not None:
            await self.kill()

        async def is_seen() -> bool:
            return any(not each.is_paid for each in await database.exits.list_seen())

        await self.settling.until(is_seen, "no exit was requested")
        return request_id

    async def ask_exit_by_wallet(self, usd: int) -> None:
        """Without the gateway, by whoever has the key."""
        settling, settlement = self.settling, self.settling.contracts[SETTLEMENT]
        sealed = await settling.database.accounts.find_chain_key_at(USER, self.address)
        assert sealed is not None
        call = settlement.encode_call("request_exit", usd * DOLLAR_MICRO)
        await settling.send(call, CUSTODY.open(USER, sealed))

    async def until_paid_out(self) -> None:
        """Roots, what was spent and the exit itself, while chain time passes."""
        if self.kill is not None:
            await self.kill()

        async def is_paid() -> bool:
            await self.pass_time(10)
            await self.execute("UPDATE chain_requests SET due_at = now()")
            seen = await self.settling.database.exits.list_seen()
            held = await self.settling.database.credit_holds.find(exit_hold_id(self.address))
            return bool(seen) and all(each.is_paid for each in seen) and held is None

        await self.settling.until(is_paid, "the exit is not paid")

    # the world around

    async def make_provider(self) -> str:
        """The user's node as a provider, whose key the network holds."""
        made = CUSTODY.make(USER, NODE)
        await self.execute("INSERT INTO nodes (id, account_id) VALUES ($1, $2)", NODE, USER)
        await self.settling.database.providers.ensure(NODE, account_id=USER, address=made.address, sealed=made.sealed)
        return made.address

    async def post_snapshot(self) -> None:
        """One validator and an empty table of providers: orders can be made, and nobody bids."""
        settling = self.settling
        token, stakes, tasks = (settling.contracts[name] for name in (TOKEN, "stake_registry", "task_manager"))
        await settling.send(token.encode_call("faucet", STAKER.address, STAKE), STAKER)
        await settling.send(token.encode_call("approve", stakes.address, STAKE), STAKER)
        proof = self._signed(VOTER, stakes.address, VoteKey(STAKER.address, VOTER.address))
        await settling.send(stakes.encode_call("join", VOTER.address, proof, "http://127.0.0.1:1", STAKE), STAKER)
        await self.pass_time(10)
        await settling.send(stakes.encode_call("activate", STAKER.address), STAKER)
        vote = self._signed(VOTER, tasks.address, ReputationSnapshot(1, 0, bytes(32), 0, bytes(32)))
        await settling.send(tasks.encode_call("post_snapshot", 1, 0, bytes(32), 0, bytes(32), [(vote, 0)]), STAKER)
        await settling.client.request("anvil_mine", hex(DEPTH))

    def _signed(self, key: SigningKey, contract: str, message: Any) -> bytes:
        domain = contract_domain(chain_id=self.settling.chain_id, contract=contract)
        return key.sign(message_digest(domain, message))

    async def pass_time(self, seconds: int) -> None:
        await self.settling.client.request("evm_increaseTime", seconds)
        await self.settling.client.request("evm_mine")

    async def execute(self, statement: str, *values: object) -> None:
        async with self.settling.database._pool.transaction() as connection:
            await connection.execute(statement, *values)

    # what must hold

    async def balance(self, name: str) -> int:
        return (await self.settling.database.ledger.balances([name]))[name]

    async def audit(self) -> ChainAudit:
        """With all final events in the books."""
        settling = self.settling
        for _ in range(DEPTH + 1):
            await settling.round()
        index = await settling.database.chain.index()
        assert index is not None
        auditor = ChainAuditor(settling.client, settling.database, settling.contracts, DEPTH)
        return await auditor.compare(final_block=index.block_number - DEPTH + 1)

    async def check(self) -> None:
        report = await self.audit()
        assert report.differences == []
        assert (report.uncovered_nano, report.shortfall_nano, report.in_order) == (0, 0, True)
        assert (await self.settling.database.ledger.audit()).is_clean

    async def give(self, usd: int) -> None:
        """Free credits."""
        service = CreditService(self.settling.database.ledger, rules=RULES, clock=SystemClock())
        await service.grant(USER, Nano(usd * DOLLAR), reference=f"free-{usd}")

    async def pay_elsewhere(self, usd: int) -> None:
        """Paid credits that are not on the chain."""
        service = CreditService(self.settling.database.ledger, rules=RULES, clock=SystemClock())
        await service.deposit(USER, ConfirmedDeposit(f"paid-{usd}", Nano(usd * DOLLAR)), adapter="test")

    async def spend(self, name: str, *, written: int) -> None:
        """The user has an answer written, for 40 nano-USD a token."""
        paid = job(name, delivery(OWNER, prompt=0, written=written), paid=40 * written, account=USER, at=time.time())
        await settle(self.settling.database, paid)


async def walk(books: Bookkeeping) -> None:
    """Deposit, order, refund, order again out of it, bond, unbond, withdraw, exit; the books are checked after each."""
    await books.deposit(20, "one")
    await books.check()
    order_id = await books.order(5, "first")
    await books.check()
    await books.cancel(order_id, "c")
    await books.check()
    order_id = await books.order(6, "second")
    await books.check()
    provider = await books.make_provider()
    await books.bond(3, provider, "b")
    await books.check()
    await books.unbond(3, provider, "u")
    await books.check()
    await books.cancel(order_id, "d")
    await books.collect("w")
    await books.check()
    assert await books.balance(f"credits:{USER}") == 20 * DOLLAR
    await books.spend("answer", written=25_000_000)  # one dollar
    request_id = await books.ask_exit(9, "e", receiver=RECEIVER)
    await books.check()
    await books.until_paid_out()
    await books.until_ended(request_id)
    await books.check()
    assert await books.settling.tokens_at(RECEIVER) == 9 * DOLLAR_MICRO
    assert await books.balance(f"credits:{USER}") == 10 * DOLLAR


async def rebuild_and_compare(books: Bookkeeping) -> None:
    """The index is dropped and read anew, its readers start over: the books stay as they are."""
    settling = books.settling
    before = await _all_balances(settling)
    await settling.follower.begin(rebuild=True)
    await books.execute("DELETE FROM chain_readers")
    await settling.follower.catch_up()
    await books.check()
    assert await _all_balances(settling) == before


async def _all_balances(settling: Settling) -> dict[str, int]:
    async with settling.database._pool.transaction() as connection:
        rows = await connection.fetch("SELECT account, nano FROM balances WHERE nano <> 0 ORDER BY account")
    return {row["account"]: row["nano"] for row in rows}


@asynccontextmanager
async def killed_process(url: str, dsn: str, folder: Path) -> AsyncIterator[Callable[[int, int], Awaitable[None]]]:
    """What starts and kills the chain's process, by a seed and a number of kills."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.integration.chain.bookkeeping", url, dsn, str(folder)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    )
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout = process.stdin, process.stdout

    async def kill(seed: int, kills: int) -> None:
        stdin.write(f"{seed} {kills}\n".encode())
        assert await stdout.readline() == b"killed\n"

    try:
        yield kill
    finally:
        stdin.close()
        await process.wait()


async def walk_with_mishaps(anvil: Anvil, dsn: str, folder: Path, *, seed: int, kills: int) -> None:
    """The walk, while the chain's process is killed and the chain reorganised in each of its steps."""
    rng = random.Random(seed)  # noqa: S311 (repeatable on purpose)
    async with (
        open_settling(anvil.url, dsn, folder, test_money=True, plan=quick_plan()) as settling,
        killed_process(anvil.url, dsn, folder) as kill_by_seed,
    ):

        async def kill() -> None:
            await kill_by_seed(rng.randrange(2**32), kills)
            if rng.random() < 0.5:
                await settling.client.request("anvil_reorg", rng.randint(1, DEPTH - 1), [])

        books = Bookkeeping(settling)
        await books.post_snapshot()
        books.kill = kill
        await walk(books)
        await rebuild_and_compare(books)


# the process that is killed


def kill_after(operations: int) -> None:
    """Count every operation of this process, and end it without warning before or after the last."""
    left = operations

    def counted(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def do(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            left -= 1
            if left <= 0 and operations % 2:
                os.kill(os.getpid(), signal.SIGKILL)
            done = await method(*args, **kwargs)
            if left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return done

        return do

    owners: list[tuple[Any, tuple[str, ...]]] = [
        (ConnectionPool, ("rows", "row", "value", "execute")),
        (ChainClient, ("_await_reply",)),
        (asyncpg.Connection, ("execute", "fetchrow", "fetchval")),
    ]
    for owner, names in owners:
        for name in names:
            setattr(owner, name, counted(getattr(owner, name)))


async def live(url: str, dsn: str, folder: str, operations: int) -> None:
    async with open_settling(url, dsn, Path(folder), test_money=True, plan=quick_plan()) as settling:
        kill_after(operations)
        for _ in range(ROUNDS_MAX * OPERATIONS_MAX):
            await settling.round()


def main(url: str, dsn: str, folder: str) -> None:
    """For each line `SEED KILLS` of stdin: so many lives, then a line on stdout."""
    for line in sys.stdin:
        seed, kills = map(int, line.split())
        rng = random.Random(seed)  # noqa: S311 (repeatable on purpose)
        for _ in range(kills):
            operations = rng.randint(1, OPERATIONS_MAX)
            pid = os.fork()
            if pid == 0:
                asyncio.run(live(url, dsn, folder, operations))
                os._exit(1)
            _, status = os.waitpid(pid, 0)
            if not os.WIFSIGNALED(status):
                sys.exit("a life ended by itself")
        sys.stdout.write("killed\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
