"""The account and the node that a request about money names in its query string."""

from __future__ import annotations

from typing import Protocol

from aiohttp import web

from sparewatt.accounts.principal import Principal, require_operator
from sparewatt.core.errors import NotFound
from sparewatt.core.ids import AccountId, NodeId
from sparewatt.inference.fleet.find_node import find_node
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.store.accounts import AccountRow

_ADDRESS_CHARS = 42


class AccountFinder(Protocol):
    async def get(self, id_or_email: str, /) -> AccountRow:
        """Raises AccountNotFound."""
        ...


async def select_account(request: web.Request, principal: Principal, accounts: AccountFinder) -> AccountId:
    """The account of `?account=`, which must be the principal's own unless it is an operator; by default its own."""
    name = request.query.get("account")
    if name is None or name == principal.account_id:
        return principal.account_id
    require_operator(principal)
    return (await accounts.get(name)).id


def select_node(request: web.Request, nodes: NodeTable) -> NodeId | None:
    """The node of `?node=`: a name or address of a known node, or the address of one that has left."""
    name = request.query.get("node")
    if name is None:
        return None
    try:
        return find_node(nodes, name).id
    except NotFound:
        if name.startswith("0x") and len(name) == _ADDRESS_CHARS and name.isascii():
            return NodeId(name.lower())
        raise
