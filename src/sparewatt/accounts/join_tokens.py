"""Join tokens: single use, expiring, exchanged for the registration of a node's key in the token's account."""

from __future__ import annotations

import datetime as dt

from sparewatt.accounts.keys import hash_secret
from sparewatt.core.errors import JoinRefused
from sparewatt.core.ids import AccountId, KeyId, NodeId
from sparewatt.core.limits import JOIN_TOKEN_LIFE_S
from sparewatt.core.rng import Rng
from sparewatt.store.database import Database

JOIN_TOKEN_PREFIX = "join-sw-"  # noqa: S105 (a prefix, not a secret)
_NEW = "Make a new one with 'sparewatt node token'."
_REFUSALS = {
    "unknown": f"This join token is not known here. {_NEW}",
    "used": f"This join token has been used. {_NEW}",
    "expired": f"This join token has expired. {_NEW}",
    "closed": "The account of this join token is closed. Ask the network's operator.",
}


class JoinTokens:
    def __init__(self, database: Database, *, rng: Rng) -> None:
        self._database = database
        self._rng = rng

    async def create(
        self, account_id: AccountId, *, created_by: KeyId | None = None, life_s: float = JOIN_TOKEN_LIFE_S
    ) -> tuple[str, dt.datetime]:
        """A token for one node of this account. Whoever lends machines is an owner."""
        token = JOIN_TOKEN_PREFIX + self._rng.randbytes(20).hex()
        expires_at = await self._database.insert_join_token(
            hash_secret(token), account_id=account_id, created_by=created_by, life_s=life_s
        )
        await self._database.accounts.make_owner(account_id)
        return token, expires_at

    async def admit(self, node_id: NodeId, token: str | None) -> AccountId:
        """Let a node in that has proved its key; tells whose it is. Raises JoinRefused, having changed nothing."""
        owner = await self._database.find_node_owner(node_id)
        if owner is None:
            await self._register(node_id, token)
            owner = await self._database.find_node_owner(node_id)
        if owner is None or owner.closed:
            raise JoinRefused(f"The account of node {node_id} is closed. Ask the network's operator.", reason="closed")
        return owner.account_id

    async def _register(self, node_id: NodeId, token: str | None) -> None:
        if token is None:
            raise JoinRefused(
                f"Node {node_id} is not registered here and brought no join token. {_NEW}", reason="no_token"
            )
        verdict = await self._database.exchange_join_token(hash_secret(token), node_id)
        if verdict != "accepted":
            raise JoinRefused(_REFUSALS[verdict], reason=f"token_{verdict}")
