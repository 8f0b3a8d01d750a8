"""/v1/usage: what an account used, by day, model, key or job. A job is in it once it is settled."""

from __future__ import annotations

import re

from aiohttp import web

from sparewatt.api.endpoint import Reply, get
from sparewatt.api.money.lines import job_usage_of, usage_group_of
from sparewatt.api.money.pages import STATEMENT_QUERY, Page, cursor_of, read_page, statement_reply
from sparewatt.api.money.selection import AccountFinder, select_account
from sparewatt.api.query import choice
from sparewatt.core.clock import Clock
from sparewatt.core.errors import InvalidField
from sparewatt.core.ids import AccountId, KeyId
from sparewatt.edge.auth import Authenticator
from sparewatt.edge.middleware import context_of
from sparewatt.protocol.api.usage import JobUsage, JobUsageList, UsageGroup, UsageGroupList
from sparewatt.store.statements import StatementStore, UsageBy

_GROUPS: dict[str, UsageBy] = {"day": "day", "model": "model", "key": "key"}
_KEY_ID = re.compile(r"[a-z]{3}_[0-9a-z_]{1,40}")


class UsageEndpoints:
    def __init__(
        self, *, auth: Authenticator, accounts: AccountFinder, statements: StatementStore, clock: Clock
    ) -> None:
        self._auth = auth
        self._accounts = accounts
        self._statements = statements
        self._clock = clock

    @get("/v1/usage", query=(*STATEMENT_QUERY, "by", "key", "account"), csv=True)
    async def show_usage(self, request: web.Request) -> Reply[UsageGroupList] | Reply[JobUsageList] | web.Response:
        """Show what your account used, by day, model, key or job; operators may name another account."""
        principal = await self._auth.authenticate(context_of(request), "inference")
        by = choice(request, "by", [*_GROUPS, "job"])
        page = read_page(request, now_unix_s=self._clock.unix_s())
        account, key = await select_account(request, principal, self._accounts), _select_key(request)
        if by == "job":
            return statement_reply(page, await self._jobs(account, key, page), JobUsage, name="usage")
        groups = await self._groups(account, key, page, by=_GROUPS[by])
        return statement_reply(page, groups, UsageGroup, name="usage")

    async def _jobs(self, account: AccountId, key: KeyId | None, page: Page) -> JobUsageList:
        rows = await self._statements.jobs(account, span=page.span, key_id=key, after=page.cursor, limit=page.limit)
        following = cursor_of(rows[-1].opened_at, rows[-1].id) if len(rows) == page.limit else None
        return JobUsageList(data=[job_usage_of(row) for row in rows], next=following)

    async def _groups(self, account: AccountId, key: KeyId | None, page: Page, *, by: UsageBy) -> UsageGroupList:
        rows = await self._statements.usage(
            account, by=by, span=page.span, key_id=key, after=page.after, limit=page.limit
        )
        following = rows[-1].name if len(rows) == page.limit else None
        return UsageGroupList(data=[usage_group_of(row) for row in rows], next=following)


def _select_key(request: web.Request) -> KeyId | None:
    key = request.query.get("key")
    if key is not None and not _KEY_ID.fullmatch(key):
        raise InvalidField("A key is named by its id, e.g. key_5k0wq2.", param="key")
    return KeyId(key) if key is not None else None
