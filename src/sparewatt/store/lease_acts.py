"""What keeps a lease running, in Postgres: nodes' signed acts, documents of deployments, sealed secrets."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from sparewatt.protocol.contracts.lease_content import SECRETS_MAX
from sparewatt.protocol.link.lease_tasks import LeaseAct
from sparewatt.store.connection_pool import Store

ACTS_PER_ACCOUNT_MAX = 256
"""Of one node key in one order: a confirmation is signed again when its number or deadline is over."""
ACTS_READ_MAX = 512
ACT_LIFE_S = 7 * 86_400.0
"""A resignation is good for its whole term, which may be long; the others end by their deadline."""
KEPT_DAYS = 30


@dataclass(frozen=True, slots=True)
class StoredAct:
    account: str
    """The node key that signed it."""
    act: LeaseAct


class LeaseActStore(Store):
    async def save(self, account: str, act: LeaseAct) -> bool:
        """False if it was known, or the account has too many. The chain's process is woken."""
        numbers = (act.order_id, act.term, act.kind.value, account, act.nonce, act.seq)
        text = msgspec.json.encode(act).decode()
        return bool(await self._pool.value("save_lease_act", *numbers, text, ACTS_PER_ACCOUNT_MAX))

    async def list_recent(self) -> list[StoredAct]:
        """The newest first, without those that are too old to be of use."""
        rows = await self._pool.rows("recent_lease_acts", ACT_LIFE_S, ACTS_READ_MAX)
        return [StoredAct(row["account"], msgspec.json.decode(row["act"], type=LeaseAct)) for row in rows]

    async def save_details(self, order_id: str, details_hash: str, document: str) -> None:
        await self._pool.execute("save_lease_details", details_hash, order_id, document)

    async def find_details(self, order_id: str, details_hash: str) -> str | None:
        found: str | None = await self._pool.value("find_lease_details", details_hash, order_id)
        return found

    async def save_nonce(self, account: str, contract: str, nonce: int) -> None:
        """Gateways are woken if it changed."""
        await self._pool.value("save_lease_key_nonce", account, contract, nonce)

    async def nonces_of(self, account: str) -> dict[str, int]:
        """By contract; one that is missing is 0."""
        return {row["contract"]: row["nonce"] for row in await self._pool.rows("list_lease_key_nonces", account)}

    async def save_secret(self, order_id: str, attempt: int, *, provider: str, name: str, sealed: str) -> None:
        await self._pool.execute("save_lease_secret", order_id, attempt, provider, name, sealed)

    async def secrets_of(self, order_id: str, attempt: int, *, provider: str) -> dict[str, str]:
        """By name, sealed to this provider's node."""
        rows = await self._pool.rows("list_lease_secrets", order_id, attempt, provider, SECRETS_MAX)
        return {row["name"]: row["sealed"] for row in rows}

    async def forget_old(self) -> None:
        await self._pool.execute("forget_lease_acts", KEPT_DAYS)
        await self._pool.execute("forget_lease_secrets", KEPT_DAYS)
