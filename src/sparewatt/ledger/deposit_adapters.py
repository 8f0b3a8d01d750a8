"""Rails by which money comes in: one adapter each, all behind one question.

An adapter says what has really arrived for an account, and by which name that arrival is known. What is posted is what
the adapter says, never what the asker claims.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from sparewatt.core.errors import InvalidField
from sparewatt.core.ids import AccountId
from sparewatt.core.money import Nano

TEST_ADAPTER = "test"
CHAIN_ADAPTER = "chain"


@dataclass(frozen=True, slots=True)
class ConfirmedDeposit:
    """Money that came in. `reference` names it once and for all: the same one is never posted twice."""

    reference: str
    nano: Nano
    posted: bool | None = None
    """By a rail that posts what arrives by itself, as the chain's does: whether it is news. None: post it."""


class DepositAdapter(Protocol):
    async def confirm(self, account: AccountId, *, reference: str, nano: Nano | None) -> ConfirmedDeposit:
        """What arrived under this reference. Raises InvalidField if nothing did."""
        ...


class TestMoneyAdapter:
    """Money out of nothing, for networks that people try out."""

    __test__ = False  # the name is for people, not for pytest

    async def confirm(self, account: AccountId, *, reference: str, nano: Nano | None) -> ConfirmedDeposit:
        if nano is None:
            raise InvalidField("Say how much: 'usd' or 'nano'.", param="usd")
        return ConfirmedDeposit(f"{account}:{reference}", nano)


def adapters_for(*, development: bool, chain: DepositAdapter | None = None) -> dict[str, DepositAdapter]:
    test: dict[str, DepositAdapter] = {TEST_ADAPTER: TestMoneyAdapter()} if development else {}
    return test | ({CHAIN_ADAPTER: chain} if chain is not None else {})


def adapter_named(name: str, adapters: Mapping[str, DepositAdapter]) -> DepositAdapter:
    """Raises InvalidField with those that there are."""
    if name not in adapters:
        known = ", ".join(sorted(adapters)) or "none so far; ask its operator for credits"
        raise InvalidField(f"This network takes no deposits by {name[:40]!r}. Known: {known}.", param="adapter")
    return adapters[name]
