"""Nodes that Postgres knows and this process has not seen yet: offline in the table until they dial in."""

from __future__ import annotations

from sparewatt.inference.fleet.link_registry import LinkRegistry
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.store.database import Database


async def load_known_nodes(database: Database, links: LinkRegistry, table: NodeTable) -> None:
    for node in await database.list_nodes():
        links.owners.setdefault(node.id, node.account_id)
        if node.specs is not None and table.get(node.id) is None:
            table.remember(node.id, node.specs, last_seen_unix_s=node.last_seen_unix_s)
            table.set_owner(node.id, node.account_id)
            links.names.claim(node.id, node.account_id, node.specs.name)
