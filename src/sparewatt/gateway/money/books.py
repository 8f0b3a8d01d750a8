"""/v1/ledger: for operators: are the books in order, and the balances made anew from the postings."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from sparewatt.gateway.http import authenticate_operator, json_reply
from sparewatt.gateway.services import services_of
from sparewatt.store.books import Audit


async def audit(request: web.Request) -> web.StreamResponse:
    await authenticate_operator(request)
    return json_reply(_describe(await services_of(request).database.books.audit()))


async def rebuild(request: web.Request) -> web.StreamResponse:
    """Balances are a projection; nothing that was posted changes."""
    await authenticate_operator(request)
    books = services_of(request).database.books
    before = await books.audit()
    await books.rebuild_balances()
    return json_reply(_describe(await books.audit()) | {"balances_corrected": before.wrong_balances})


def _describe(found: Audit) -> dict[str, Any]:
    return {
        "in_order": found.is_clean,
        "sum_nano": found.total,
        "unbalanced_causes": found.unbalanced_causes,
        "open_clearing_accounts": found.open_clearing_accounts,
        "wrong_balances": found.wrong_balances,
        "overdrawn": found.overdrawn,
    }
