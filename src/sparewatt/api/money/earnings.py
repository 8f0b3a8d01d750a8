"""/v1/earnings: what the nodes of an account earned, by job, day, model or node. A job is in it once it is settled."""

from __future__ import annotations

from aiohttp import web

from sparewatt.api.endpoint import Reply, get
from sparewatt.api.money.lines import attempt_earnings_of, earnings_group_of
from sparewatt.api.money.pages import STATEMENT_QUERY, Page, cursor_of, read_page, statement_reply
from sparewatt.api.money.selection import AccountFinder, select_account, select_node
from sparewatt.api.query import choice
from sparewatt.core.clock import Clock
from sparewatt.core.ids import AccountId, NodeId
from sparewatt.edge.auth import Authenticator
from sparewatt.edge.middleware import context_of
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.protocol.api.earnings import AttemptEarnings, AttemptEarningsList, EarningsGroup, EarningsGroupList
from sparewatt.store.statements import EarningsBy, StatementStore

_GROUPS: dict[str, EarningsBy] = {"day": "day", "model": "model", "node": "node"}


class EarningsEndpoints:
    def __init__(
        self,
        *,
        auth: Authenticator,
        accounts: AccountFinder,
        statements: StatementStore,
        nodes: NodeTable,
        clock: Clock,
    ) -> None:
        self._auth = auth
        self._accounts = accounts
        self._statements = statements
        self._nodes = nodes
        self._clock = clock

    @get("/v1/earnings", query=(*STATEMENT_QUERY, "by", "node", "account"), csv=True)
    async def show_earnings(
        self, request: web.Request
    ) -> Reply[AttemptEarningsList] | Reply[EarningsGroupList] | web.Response:
        """Show what your nodes earned, by job, day, model or node; operators may name another account."""
        principal = await self._auth.authenticate(context_of(request), "node")
        by = choice(request, "by", ["job", *_GROUPS])
        page = read_page(request, now_unix_s=self._clock.unix_s())
        owner, node = await select_account(request, principal, self._accounts), select_node(request, self._nodes)
        if by == "job":
            return statement_reply(page, await self._attempts(owner, node, page), AttemptEarnings, name="earnings")
        groups = await self._groups(owner, node, page, by=_GROUPS[by])
        return statement_reply(page, groups, EarningsGroup, name="earnings")

    async def _attempts(self, owner: AccountId, node: NodeId | None, page: Page) -> AttemptEarningsList:
        rows = await self._statements.earnings(owner, span=page.span, node_id=node, after=page.cursor, limit=page.limit)
        is_full = len(rows) == page.limit
        following = cursor_of(rows[-1].opened_at, rows[-1].job_id, rows[-1].position) if is_full else None
        return AttemptEarningsList(data=[attempt_earnings_of(row) for row in rows], next=following)

    async def _groups(self, owner: AccountId, node: NodeId | None, page: Page, *, by: EarningsBy) -> EarningsGroupList:
        rows = await self._statements.earnings_by(
            owner, by=by, span=page.span, node_id=node, after=page.after, limit=page.limit
        )
        following = rows[-1].name if len(rows) == page.limit else None
        return EarningsGroupList(data=[earnings_group_of(row) for row in rows], next=following)
