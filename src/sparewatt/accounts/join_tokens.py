"""Join tokens: a node exchanges one, once and before it expires, to register its key in the token's account."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass

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


@dataclass(slots=True)
class JoinTokens:
    database: Database
    rng: Rng
    is_lease_over: Callable[[str], bool] = lambda _order: False
    """By its order: what ran in it is nobody's node any more."""

    async def create(
        self,
        account_id: AccountId,
        *,
        created_by: KeyId | None = None,
        life_s: float = JOIN_TOKEN_LIFE_S,
        lease_order: str | None = None,
    ) -> tuple[str, dt.datetime]:
        """A token for one node of this account, whose role becomes owner. With a lease's order, the node is one while
        that lease goes on."""
        token = JOIN_TOKEN_PREFIX + self.rng.randbytes(20).hex()
        expires_at = await self.database.insert_join_token(
            hash_secret(token), account_id=account_id, created_by=created_by, life_s=life_s, lease_order=lease_order
        )
        await self.database.accounts.make_owner(account_id)
        return token, expires_at

    async def admit(self, node_id: NodeId, token: str | None) -> AccountId:
        """The owner of a node that has proved its key. A new one needs a token. Raises JoinRefused."""
        owner = await self.database.find_node_owner(node_id)
        if owner is None:
            await self._register(node_id, token)
            owner = await self.database.find_node_owner(node_id)
        if owner is None or owner.closed:
            raise JoinRefused(f"The account of node {node_id} is closed. Ask the network's operator.", reason="closed")
        if owner.lease_order is not None and self.is_lease_over(owner.lease_order):
            raise JoinRefused(f"The lease that node {node_id} ran in is over.", reason="lease_over")
        return owner.account_id

    async def _register(self, node_id: NodeId, token: str | None) -> None:
        if token is None:
            raise JoinRefused(f"Node {node_id} is not registered here and has no join token. {_NEW}", reason="no_token")
        verdict = await self.database.exchange_join_token(hash_secret(token), node_id)
        if verdict != "accepted":
            raise JoinRefused(_REFUSALS[verdict], reason=f"token_{verdict}")
