"""One account's money over the real contracts, with books in a real Postgres: what it does, and what must hold then."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from msgspec.structs import replace

from sparewatt.chain.contracts import DeploymentStep, shipped_plan
from sparewatt.chain.money.audit import ChainAuditor
from sparewatt.chain.money.settlement_contract import SETTLEMENT
from sparewatt.core.clock import SystemClock
from sparewatt.core.ids import NodeId
from sparewatt.core.money import Nano
from sparewatt.ledger.chain_credits import ChainCreditService
from sparewatt.ledger.credits import CreditService
from sparewatt.ledger.deposit_adapters import ConfirmedDeposit, deposit_request
from sparewatt.ledger.pockets import exit_hold_id
from sparewatt.protocol.api.ledger import ChainAudit
from sparewatt.store.chain_requests import ChainRequestRow, ChainRequestState, NewChainRequest
from sparewatt.store.credit_holds import EXIT, REQUEST, CreditHoldRow
from sparewatt.store.request_params import (
    ALL_CONTRACTS,
    ChainRequestKind,
    ExitParams,
    ProviderParams,
    WithdrawParams,
)
from tests.integration.chain.settling import OWNER, USER, Settling
from tests.integration.chain.single_order import order_one
from tests.integration.chain.stepped_chain import CUSTODY, DEPTH, DOLLAR, DOLLAR_MICRO
from tests.integration.money.samples import RULES, delivery, job, settle

ROOT_DELAY_S, EXIT_S, BOOK_S, UNBOND_S = 20, 200, 60, 3_600
RECEIVER = "0x" + "5e" * 20
NODE = NodeId("0x" + "77" * 20)


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
            await self.settling.execute("UPDATE chain_requests SET due_at = now() WHERE due_at > now()")
            if pass_s:
                await self.settling.pass_time(pass_s)
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

    async def ask_order(self, usd: int, reference: str) -> str:
        """The id of the request."""
        asked, deposit_micro = await self.settling.order_params(), usd * DOLLAR_MICRO
        return await order_one(self.settling.leases, USER, asked, deposit_micro=deposit_micro, reference=reference)

    async def order(self, usd: int, reference: str) -> str:
        """Returns the order's id."""
        row = await self.until_ended(await self.ask_order(usd, reference))
        assert row.state is ChainRequestState.DONE, row.reason
        return str(row.result["order_id"])

    async def cancel(self, order_id: str, reference: str) -> None:
        row = await self.settling.leases.act(USER, ChainRequestKind.CANCEL, order_id, reference=reference)
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
            await self.settling.pass_time(10)
            await self.settling.execute("UPDATE chain_requests SET due_at = now()")
            seen = await self.settling.database.exits.list_seen()
            held = await self.settling.database.credit_holds.find(exit_hold_id(self.address))
            return bool(seen) and all(each.is_paid for each in seen) and held is None

        await self.settling.until(is_paid, "the exit is not paid")

    # the world around

    async def make_provider(self) -> str:
        """The user's node as a provider, whose key the network holds."""
        made = CUSTODY.make(USER, NODE)
        await self.settling.execute("INSERT INTO nodes (id, account_id) VALUES ($1, $2)", NODE, USER)
        await self.settling.database.providers.ensure(NODE, account_id=USER, address=made.address, sealed=made.sealed)
        return made.address

    # what must hold

    async def balance(self, name: str) -> int:
        return (await self.settling.database.ledger.balances([name]))[name]

    async def all_balances(self) -> dict[str, int]:
        async with self.settling.database._pool.transaction() as connection:
            rows = await connection.fetch("SELECT account, nano FROM balances WHERE nano <> 0 ORDER BY account")
        return {row["account"]: row["nano"] for row in rows}

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
