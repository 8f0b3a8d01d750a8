"""A store of secrets and numbers for tests of the relay of tasks."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class MemoryTaskStore:
    """Implements TaskStore."""

    nonces: dict[str, dict[str, int]] = field(default_factory=dict)
    """By node key and contract."""
    sealed: dict[str, dict[str, str]] = field(default_factory=dict)
    """By provider and name."""

    async def nonces_of(self, account: str) -> dict[str, int]:
        return dict(self.nonces.get(account, {}))

    async def secrets_of(self, order_id: str, attempt: int, *, provider: str) -> dict[str, str]:
        return dict(self.sealed.get(provider, {})) if order_id and attempt >= 0 else {}
