"""What a local network's database must contain before the first connection: a key, join tokens and test money.

Every step is idempotent: it runs at each start of `sparewatt up`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from sparewatt.accounts.join_tokens import JoinTokens
from sparewatt.accounts.keys import KeyRing, KeyService, hash_secret, new_secret
from sparewatt.accounts.principal import SCOPES
from sparewatt.core.clock import Clock
from sparewatt.core.errors import StartupError
from sparewatt.core.ids import NETWORK_ACCOUNT, AccountId, NodeId
from sparewatt.core.money import NANO_PER_USD, Nano
from sparewatt.core.rng import Rng
from sparewatt.ledger.rules import deposit_postings, grant_postings, treasury_postings, uptime_fund_postings
from sparewatt.localnet.nodes import LocalNode
from sparewatt.machine.data_dir import write_private
from sparewatt.protocol.signing import SigningKey
from sparewatt.store.accounts import NewAccount
from sparewatt.store.database import Database, KeyTerms
from sparewatt.store.ledger import LedgerStore, Transfer

LOCAL_NODES_ACCOUNT = AccountId("acc_local_nodes")
"""Owns the local nodes. Not the operator's account: free credits are never spent at nodes of the same account."""

TEST_CREDITS_USD, TEST_TREASURY_USD, TEST_BONDS_USD, TEST_UPTIME_FUND_USD = 100, 10, 100, 10


OPERATOR_KEY_FILE, OWNER_KEY_FILE = "demo.key", "nodes.key"


@dataclass(frozen=True, slots=True)
class BootstrapSecrets:
    api_key: str
    owner_key: str
    """Of the account that owns the local nodes."""
    join_token: str
    node_tokens: dict[str, str]


async def bootstrap_database(
    dsn: str, data: Path, nodes: list[LocalNode], *, clock: Clock, rng: Rng
) -> BootstrapSecrets:
    """Creates the start-up key, a join token for one more node, and tokens for local nodes that are not registered."""
    database = await Database.connect(dsn)
    try:
        secret = await asyncio.to_thread(_stored_secret, data / OPERATOR_KEY_FILE, rng)
        owner_secret = await asyncio.to_thread(_stored_secret, data / OWNER_KEY_FILE, rng)
        await _ensure_key(database, NETWORK_ACCOUNT, secret, name="start-up key", rng=rng)
        await database.accounts.ensure_account(NewAccount(LOCAL_NODES_ACCOUNT, "local nodes", role="owner"))
        await _ensure_key(database, LOCAL_NODES_ACCOUNT, owner_secret, name="local nodes' key", rng=rng)
        await _fund(database.ledger, unix_s=clock.unix_s())
        await database.forget_old_tokens()
        return await _create_tokens(database, nodes, api_key=secret, owner_key=owner_secret, rng=rng)
    finally:
        await database.close()


async def _create_tokens(
    database: Database, nodes: list[LocalNode], *, api_key: str, owner_key: str, rng: Rng
) -> BootstrapSecrets:
    ids = {node.name: node_id for node in nodes if (node_id := node_id_of(node)) is not None}
    # networks from before there were accounts
    await database.move_nodes(list(ids.values()), source=NETWORK_ACCOUNT, target=LOCAL_NODES_ACCOUNT)
    registered = {name for name, node_id in ids.items() if await database.find_node_owner(node_id) is not None}
    tokens = JoinTokens(database, rng=rng)
    join_token, _ = await tokens.create(LOCAL_NODES_ACCOUNT)
    missing = [node.name for node in nodes if node.name not in registered]
    node_tokens = {name: (await tokens.create(LOCAL_NODES_ACCOUNT))[0] for name in missing}
    return BootstrapSecrets(api_key=api_key, owner_key=owner_key, join_token=join_token, node_tokens=node_tokens)


def node_id_of(node: LocalNode) -> NodeId | None:
    """None before its first start."""
    key_file = node.data_dir / "node.key"
    return NodeId(SigningKey.read(key_file).address) if key_file.exists() else None


async def _fund(ledger: LedgerStore, *, unix_s: float) -> None:
    """Test money, once: credits for the start-up key, free credits for the bonds of the local nodes, a treasury that
    pays owners for jobs on free credits, and a fund that credits renters whose leases were down."""
    money, treasury = Nano(TEST_CREDITS_USD * NANO_PER_USD), Nano(TEST_TREASURY_USD * NANO_PER_USD)
    credit, fund = tuple(deposit_postings(NETWORK_ACCOUNT, money)), tuple(treasury_postings(treasury))
    await ledger.post_transfer(Transfer("up:credits", "deposit", NETWORK_ACCOUNT, money, credit, unix_s))
    bonds = Nano(TEST_BONDS_USD * NANO_PER_USD)
    grant = tuple(grant_postings(LOCAL_NODES_ACCOUNT, bonds))
    await ledger.post_transfer(Transfer("up:bonds", "grant", LOCAL_NODES_ACCOUNT, bonds, grant, unix_s))
    await ledger.post_transfer(Transfer("up:treasury", "treasury", NETWORK_ACCOUNT, treasury, fund, unix_s))
    uptime = Nano(TEST_UPTIME_FUND_USD * NANO_PER_USD)
    lines = tuple(uptime_fund_postings(uptime))
    await ledger.post_transfer(Transfer("up:uptime", "uptime_fund", NETWORK_ACCOUNT, uptime, lines, unix_s))


def _stored_secret(path: Path, rng: Rng) -> str:
    """In a file, since the database has only hashes of keys."""
    if not path.exists():
        write_private(path, new_secret(rng=rng).encode())
    return path.read_text().strip()


async def _ensure_key(database: Database, account: AccountId, secret: str, *, name: str, rng: Rng) -> None:
    """The account's own key, with every scope."""
    key = await database.find_key(hash_secret(secret))
    if key is None:
        service = KeyService(database, KeyRing(), rng=rng)
        key, _ = await service.create(account, terms=KeyTerms(name=name), scopes=SCOPES, secret=secret)
    if key.revoked_at is not None:
        raise StartupError(
            f"The {name} was revoked. Delete {OPERATOR_KEY_FILE} and {OWNER_KEY_FILE} in the data directory to have "
            "new ones made."
        )
