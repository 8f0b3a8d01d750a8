"""The market as a gateway knows it: the fold of the index's events, or the error that says why there is none yet."""

from __future__ import annotations

from dataclasses import dataclass

from sparewatt.core.errors import ChainUnavailable, ContractsOutdated, NoChain
from sparewatt.market.chain_records import MarketState
from sparewatt.market.chain_view import ChainView
from sparewatt.store.market_fold import MarketFold

RETRY_AFTER_S = 0.5


@dataclass(slots=True)
class MarketIndex(MarketFold):
    has_chain: bool

    def view(self) -> ChainView:
        """Raises NoChain, ChainUnavailable while it is being built, ContractsOutdated if it cannot be read."""
        if not self.has_chain:
            raise NoChain("The lease market")
        if self.problem is not None:
            raise ContractsOutdated(
                f"The market cannot be read: {self.problem}. If 'sparewatt chain status' names no other release, "
                "this is a mistake of ours: please report it, with the gateway's log."
            )
        if self.built is None or not self.is_complete:
            raise ChainUnavailable(
                "The market is not ready: its chain is starting, or is still being read.", retry_after_s=RETRY_AFTER_S
            )
        return self.built

    def latest_state(self) -> MarketState | None:
        """At the newest block; None while there is none that can be read."""
        return self.built.latest if self.built is not None and self.is_complete else None

    async def follow(self) -> None:
        if self.has_chain:
            await MarketFold.follow(self)
