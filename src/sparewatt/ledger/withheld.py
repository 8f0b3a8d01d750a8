"""Withheld earnings: a state between earned and payable, by node. A passed check releases them, two failed ones on the
network's own prompts forfeit them. Who cannot be checked is paid after a day.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sparewatt.core.clock import Clock
from sparewatt.core.errors import InsufficientCredits
from sparewatt.core.ids import AccountId, NodeId
from sparewatt.core.log import Logger
from sparewatt.core.money import Nano
from sparewatt.ledger import chart, rules
from sparewatt.ledger.model import ZERO_AMOUNT, Amount
from sparewatt.store.ledger import LedgerStore, Posting, Transfer, WithheldRow

_log = Logger("sparewatt.ledger")
WITHHELD_S_MAX = 86_400.0
"""After so long without a verdict it is paid."""


@dataclass(frozen=True, slots=True)
class WithheldEarnings:
    books: LedgerStore
    clock: Clock

    async def of_node(self, owner: AccountId, node_id: NodeId) -> Amount:
        paid, promo = chart.withheld_by(owner, node_id), chart.promo_withheld_by(owner, node_id)
        balances = await self.books.balances([paid, promo])
        return Amount(balances[promo], balances[paid])

    async def of_owner(self, owner: AccountId) -> Amount:
        rows = await self.books.withheld(owner=owner)
        return Amount(Nano(sum(row.promo for row in rows)), Nano(sum(row.paid for row in rows)))

    async def release(self, owner: AccountId, node_id: NodeId, *, cause: str) -> Amount:
        """All that is withheld of a node becomes payable. `cause`: what it is for, once."""
        amount = await self.of_node(owner, node_id)
        lines = rules.release_postings(owner, node_id, amount)
        return await self._post(f"release:{cause}", "release", owner, amount, lines)

    async def forfeit(self, owner: AccountId, node_id: NodeId, *, cause: str) -> Amount:
        amount = await self.of_node(owner, node_id)
        lines = rules.forfeit_postings(owner, node_id, amount)
        return await self._post(f"forfeit:{cause}", "forfeit", owner, amount, lines)

    async def give_back(self, cause: str) -> Amount:
        """What was forfeited for this cause. Once, however often it is asked for."""
        found = await self.books.find_memo(f"forfeit:{cause}")
        if found is None:
            return ZERO_AMOUNT
        owner, memo = found
        promo, _, paid = memo.partition(" ")
        amount = Amount(Nano(int(promo)), Nano(int(paid)))
        lines = rules.restitution_postings(owner, amount)
        return await self._post(f"restitution:{cause}", "restitution", owner, amount, lines)

    async def release_overdue(self, may_release: Callable[[NodeId], bool]) -> int:
        """Pay what nobody could check for a day. `may_release`: not what a failed check still hangs over."""
        paid = 0
        for row in await self.books.note_withheld(older_than_s=WITHHELD_S_MAX):
            if may_release(row.node_id):
                paid += (await self._release_row(row)).total
        return paid

    async def _release_row(self, row: WithheldRow) -> Amount:
        amount = Amount(Nano(row.promo), Nano(row.paid))
        lines = rules.release_postings(row.owner_id, row.node_id, amount)
        cause = f"release:overdue:{row.node_id}:{self.clock.unix_s():.3f}"
        return await self._post(cause, "release", row.owner_id, amount, lines)

    async def _post(self, cause: str, kind: str, owner: AccountId, amount: Amount, lines: list[Posting]) -> Amount:
        """Zero if there is nothing, it was posted before, or another gateway was faster."""
        if not amount.total:
            return ZERO_AMOUNT
        memo = f"{amount.promo} {amount.paid}"
        transfer = Transfer(cause, kind, owner, amount.total, tuple(lines), self.clock.unix_s(), memo=memo)
        try:
            is_posted = await self.books.post_transfer(transfer)
        except InsufficientCredits:
            return ZERO_AMOUNT
        if is_posted:
            _log.info("withheld_settled", kind=kind, owner=owner, nano=amount.total)
        return amount if is_posted else ZERO_AMOUNT
