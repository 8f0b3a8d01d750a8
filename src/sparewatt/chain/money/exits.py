"""Exits of depositors: holds their credits, shows on chain what they spent, pays out when it is time.

`ExitRequested` holds the amount as soon as it is seen. Until the exit is ready, what the account has spent is put into
a payout root and recorded on chain by `record_spent`, so that the contract pays no more than is left. Then anyone may
call `exit`, and this does. `Exited`, once final, is posted by `ledger/pockets.py`, which ends the hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sparewatt.chain.client import ChainClient
from sparewatt.chain.money.settlement_contract import call_view, credit_pool, record_spent_call
from sparewatt.chain.outbox import enqueue
from sparewatt.core.clock import Clock
from sparewatt.evm.contract_abi import Contract
from sparewatt.evm.model import ContractCall
from sparewatt.ledger.payouts import NANO_PER_MICRO, PayoutService
from sparewatt.ledger.pockets import exit_hold_id
from sparewatt.store.credit_holds import EXIT, CreditHoldRow
from sparewatt.store.database import Database
from sparewatt.store.exits import AskedExit, SeenExit
from sparewatt.store.pockets import AddressOwner

EXITS_PER_STEP = 32
"""Open exits that are looked at in one step; each needs a few requests to the chain's node."""


def wanted_holds(
    seen: Sequence[SeenExit], asked: Sequence[AskedExit], *, final_block: int, hopeless: frozenset[str] = frozenset()
) -> tuple[dict[str, int], set[str]]:
    """What must be held for each address, and the addresses whose hold stays as it is.

    It stays while a payment is seen but not final. `hopeless` are exits that are ready and for which nothing is left.
    """
    wanted = {each.address: each.micro for each in seen if not each.is_paid and each.address not in hopeless}
    for each in asked:
        wanted[each.address] = max(each.micro, wanted.get(each.address, 0))
    kept = {each.address for each in seen if each.is_paid and each.block_number > final_block}
    return wanted, kept - set(wanted)


def payable_micro(*, asked: int, unspent: int, free: int) -> int:
    """What `exit` would pay."""
    return min(asked, unspent, free)


@dataclass(slots=True)
class ExitWorker:
    client: ChainClient
    database: Database
    settlement: Contract
    payouts: PayoutService
    operator: str
    depth: int
    clock: Clock
    needs_block: bool = field(default=False, init=False)
    """Whether an exit is due by the clock, and the last block is older: a chain that nobody uses makes none."""

    async def step(self) -> None:
        """Runs after final events were posted. While the index is behind the chain, holds stay as they are."""
        index = await self.database.chain.index()
        if index is None or index.block_number < index.head_number:
            return
        seen = await self.database.exits.list_seen()
        open_ones = [each for each in seen if not each.is_paid]
        asked = await self.database.exits.list_asked()
        addresses = [*(each.address for each in open_ones), *(each.address for each in asked)]
        owners = await self.database.pockets.owners(addresses)
        hopeless = await self._advance([each for each in open_ones if each.address in owners][:EXITS_PER_STEP], owners)
        wanted, kept = wanted_holds(
            seen, asked, final_block=index.final_block(depth=self.depth), hopeless=frozenset(hopeless)
        )
        await self._hold(wanted, kept, owners)
        await self._convert()

    async def _hold(self, wanted: Mapping[str, int], kept: set[str], owners: Mapping[str, AddressOwner]) -> None:
        holds, known = self.database.credit_holds, set[str]()
        for address, micro in wanted.items():
            if address in owners:
                known.add(exit_hold_id(address))
                hold = CreditHoldRow(exit_hold_id(address), EXIT, owners[address].account_id, address)
                await holds.hold_up_to(hold, nano=micro * NANO_PER_MICRO)
        for hold in await holds.list_stale_exits(wanted=sorted(known)):
            if hold.address not in kept:
                await holds.release(hold.id)

    async def _convert(self) -> None:
        """A batch now, where credits wait to become tokens."""
        if await self.database.credit_holds.has_unconverted() and not await self.database.payouts.has_open_batch():
            await self.payouts.make_batch()

    async def _advance(self, exits: Sequence[SeenExit], owners: Mapping[str, AddressOwner]) -> list[str]:
        """Record what was spent, and pay out. Returns the addresses for which nothing is left."""
        self.needs_block = False
        if not exits:
            return []
        now, hopeless = (await self.client.head()).unix_s, []
        for each in exits:
            self.needs_block |= now < (each.ready_at or 0) <= self.clock.unix_s()
            await self._record_spent(each)
            if now < (each.ready_at or 0):
                await self._put_into_a_root(owners[each.address])
            elif not await self._pay(each):
                hopeless.append(each.address)
        return hopeless

    async def _record_spent(self, exit_: SeenExit) -> None:
        """From the newest ripe root, if it shows more than the chain knows."""
        epoch = await self.database.payouts.last_ripe_epoch()
        proof = None if epoch is None else await self.payouts.proof(epoch, exit_.address)
        if proof is None or proof.leaf.spent_micro <= await self._view("spent", exit_.address):
            return
        call = record_spent_call(self.settlement, proof)
        await self._enqueue(f"spent:{exit_.address}:{proof.leaf.spent_micro}", call)

    async def _put_into_a_root(self, owner: AddressOwner) -> None:
        """A batch now, if the account has spent what is in none, and all that there are count on chain."""
        if await self.database.payouts.has_open_batch():
            return
        if await self.database.payouts.has_unshown_spending(owner.account_id):
            await self.payouts.make_batch()

    async def _pay(self, exit_: SeenExit) -> bool:
        """False if nothing is left for it. A pool without free money, or a root under delay, has it wait.

        The chain may have paid it in a block that is not indexed yet: then its hold stays until that is in the books.
        Where all was spent it is called as well: else the request stays ready, and lets a later deposit out at once.
        """
        block = (await self.client.head()).number
        pending, _ = await call_view(self.client, self.settlement, "exit_of", exit_.address, at_block=block)
        if not pending:
            return True
        unspent = int(await call_view(self.client, self.settlement, "unspent", exit_.address, at_block=block))
        if not unspent:
            await self._exit(exit_, 0)
            return False
        pool = await credit_pool(self.client, self.settlement)
        micro = payable_micro(asked=exit_.micro, unspent=unspent, free=pool.funded - pool.promised)
        is_short = micro < min(exit_.micro, unspent)
        if is_short and await self.database.payouts.has_batch_under_delay():
            return True
        if micro:
            await self._exit(exit_, micro)
        return True

    async def _exit(self, exit_: SeenExit, micro: int) -> None:
        business_id = f"exit:{exit_.address}:{exit_.ready_at}:{micro}"
        await self._enqueue(business_id, self.settlement.encode_call("exit", exit_.address))

    async def _view(self, function: str, address: str) -> int:
        return int(await call_view(self.client, self.settlement, function, address))

    async def _enqueue(self, business_id: str, call: ContractCall) -> None:
        await enqueue(self.database.chain, call, business_id=business_id, sender=self.operator)
