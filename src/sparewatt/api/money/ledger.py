"""/v1/ledger, for operators: whether the books are in order, and balances computed again from the postings."""

from __future__ import annotations

from typing import Protocol

import msgspec
from aiohttp import web

from sparewatt.api.endpoint import get, post
from sparewatt.edge.auth import Authenticator
from sparewatt.edge.middleware import context_of
from sparewatt.protocol.api.ledger import LedgerAudit, LedgerRebuild
from sparewatt.store.ledger import AuditResult


class AuditedBooks(Protocol):
    async def audit(self) -> AuditResult: ...

    async def rebuild_balances(self) -> None: ...


class LedgerEndpoints:
    def __init__(self, *, auth: Authenticator, books: AuditedBooks) -> None:
        self._auth = auth
        self._books = books

    @get("/v1/ledger/audit")
    async def audit_ledger(self, request: web.Request) -> LedgerAudit:
        """Check that postings sum to zero and that balances match them. Operators only."""
        await self._auth.authenticate_operator(context_of(request))
        return audit_of(await self._books.audit())

    @post("/v1/ledger/rebuild")
    async def rebuild_balances(self, request: web.Request) -> LedgerRebuild:
        """Compute the balances again from the postings, which do not change. Operators only."""
        await self._auth.authenticate_operator(context_of(request))
        before = await self._books.audit()
        await self._books.rebuild_balances()
        after = msgspec.structs.asdict(audit_of(await self._books.audit()))
        return LedgerRebuild(**after, balances_corrected=before.wrong_balances)


def audit_of(audit: AuditResult) -> LedgerAudit:
    return LedgerAudit(
        in_order=audit.is_clean,
        sum_nano=audit.total,
        unbalanced_causes=audit.unbalanced_causes,
        open_clearing_accounts=audit.open_clearing_accounts,
        wrong_balances=audit.wrong_balances,
        overdrawn=audit.overdrawn,
    )
