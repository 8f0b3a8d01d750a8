"""/v1/ledger, for operators: the audit of the double-entry books, and balances computed again from the postings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import msgspec
from aiohttp import web

from sparewatt.accounts.principal import Principal
from sparewatt.api.endpoint import endpoint
from sparewatt.protocol.api.ledger import ChainAudit, LedgerAudit, LedgerRebuild
from sparewatt.store.ledger import AuditResult

NO_ANSWER = "The books were not compared with the chain: its process did not answer. See 'sparewatt chain status'."


class ChainAuditing(Protocol):
    """Implemented by `ChainCreditService`."""

    async def audit(self) -> ChainAudit | None: ...


class AuditedBooks(Protocol):
    """Implemented by `LedgerStore`."""

    async def audit(self) -> AuditResult: ...

    async def rebuild_balances(self) -> None: ...


@dataclass(slots=True, kw_only=True)
class LedgerEndpoints:
    books: AuditedBooks
    chain: ChainAuditing | None
    """None if the network has no chain."""

    @endpoint("GET /v1/ledger/audit", access="operator")
    async def audit_ledger(self, _: web.Request, __: Principal) -> LedgerAudit:
        """Check that postings sum to zero, balances match them, and the books agree with the chain. Operators only."""
        compared = None if self.chain is None else await self.chain.audit()
        note = NO_ANSWER if compared is None and self.chain is not None else None
        return audit_of(await self.books.audit(), compared, note)

    @endpoint("POST /v1/ledger/rebuild", access="operator")
    async def rebuild_balances(self, _: web.Request, __: Principal) -> LedgerRebuild:
        """Compute the balances again from the postings, which do not change. Operators only."""
        before = await self.books.audit()
        await self.books.rebuild_balances()
        after = msgspec.structs.asdict(audit_of(await self.books.audit()))
        return LedgerRebuild(**after, balances_corrected=before.wrong_balances)


def audit_of(audit: AuditResult, chain: ChainAudit | None = None, note: str | None = None) -> LedgerAudit:
    return LedgerAudit(
        in_order=audit.is_clean and (chain is None or chain.in_order),
        chain=chain,
        chain_note=note,
        sum_nano=audit.total,
        unbalanced_causes=audit.unbalanced_causes,
        open_clearing_accounts=audit.open_clearing_accounts,
        wrong_balances=audit.wrong_balances,
        overdrawn=audit.overdrawn,
    )
