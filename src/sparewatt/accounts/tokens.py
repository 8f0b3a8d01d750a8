"""Join tokens: single use, expiring, exchanged for the registration of a node's key."""

from __future__ import annotations

import datetime as dt

from sparewatt.accounts.keys import hash_secret
from sparewatt.core.errors import JoinRefused
from sparewatt.core.ids import KeyId, NodeId
from sparewatt.core.limits import JOIN_TOKEN_LIFE_S
from sparewatt.core.rng import Rng
from sparewatt.store.database import Database

TOKEN_PREFIX = "join-sw-"  # noqa: S105 (a prefix, not a secret)
_NEW = "Make a new one with 'sparewatt node token'."
_REFUSALS = {
    "unknown": f"This join token is not known here. {_NEW}",
    "used": f"This join token has been used. {_NEW}",
    "expired": f"This join token has expired. {_NEW}",
}


class JoinTokens:
    def __init__(self, database: Database, *, rng: Rng) -> None:
        self._database = database
        self._rng = rng

    async def create(self, *, created_by: KeyId, life_s: float = JOIN_TOKEN_LIFE_S) -> tuple[str, dt.datetime]:
        token = TOKEN_PREFIX + self._rng.randbytes(20).hex()
        expires_at = await self._database.insert_join_token(hash_secret(token), created_by=created_by, life_s=life_s)
        return token, expires_at

    async def admit(self, node_id: NodeId, token: str | None) -> None:
        """Let a node in that has proved its key. Raises JoinRefused, having changed nothing."""
        if await self._database.node_is_registered(node_id):
            return
        if token is None:
            raise JoinRefused(
                f"Node {node_id} is not registered here and brought no join token. {_NEW}", reason="no_token"
            )
        verdict = await self._database.exchange_join_token(hash_secret(token), node_id)
        if verdict != "accepted":
            raise JoinRefused(_REFUSALS[verdict], reason=f"token_{verdict}")
