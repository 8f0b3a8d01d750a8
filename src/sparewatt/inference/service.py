"""The inference path of one gateway process, put together: what every `Submission` and every dry run goes through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sparewatt.accounts.principal import Principal, require_scope
from sparewatt.core.drain import DrainState
from sparewatt.core.errors import InvalidField, ShuttingDown
from sparewatt.core.ids import AccountId, MatchId, ModelId, new_id
from sparewatt.core.money import Nano
from sparewatt.core.rng import Rng
from sparewatt.inference.admission.model import Priority
from sparewatt.inference.admission.rules import priority_named
from sparewatt.inference.admission.service import AdmissionControl
from sparewatt.inference.capabilities import RequiredCapabilities
from sparewatt.inference.dispatch.dispatcher import Dispatcher
from sparewatt.inference.eligibility import Eligibility, PolicyGate
from sparewatt.inference.matcher.formula import RANKINGS, Ranking
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.inference.metering.price_caps import PriceCaps
from sparewatt.inference.metering.service import Metering
from sparewatt.inference.routing import Routing, route
from sparewatt.ledger.model import TokenPrice
from sparewatt.policy.model import MaxPrice, Policy
from sparewatt.policy.parser import HEADER as ROUTE_HEADER

RANKING_HEADER = "x-sparewatt-policy"
PRIORITY_HEADER = "x-sparewatt-priority"
_ROUTE = ROUTE_HEADER.lower()
_RETRY_S = 2.0


class RequestOptions(NamedTuple):
    """What a request's headers say about how it is served."""

    ranking: Ranking
    priority: Priority
    route: str | None
    """A line of the policy vocabulary."""


class InferenceService:
    def __init__(
        self,
        *,
        table: NodeTable,
        admission: AdmissionControl,
        dispatcher: Dispatcher,
        eligibility: Eligibility,
        prices: PriceCaps,
        metering: Metering | None,
        network_policy: Policy,
        default_ranking: str,
        prefix_secret: bytes,
        drain: DrainState,
        rng: Rng,
    ) -> None:
        """`metering`: None on a network without books. `prefix_secret`: keys the hashes of prompts' beginnings."""
        self.table = table
        self.admission = admission
        self.dispatcher = dispatcher
        self.metering = metering
        self.prefix_secret = prefix_secret
        self._eligibility = eligibility
        self._prices = prices
        self._network_policy = network_policy
        self._default_ranking = default_ranking
        self._drain = drain
        self._rng = rng

    def options(self, principal: Principal, headers: Mapping[str, str]) -> RequestOptions:
        """By the head of a request alone: whether it may ask at all. Raises what a client should hear."""
        require_scope(principal, "inference")
        self.refuse_if_draining()
        ranking = self.ranking_named(headers.get(RANKING_HEADER))
        priority = headers.get(PRIORITY_HEADER)
        return RequestOptions(
            ranking,
            Priority.NORMAL if priority is None else priority_named(priority, param=PRIORITY_HEADER),
            headers.get(_ROUTE),
        )

    def refuse_if_draining(self) -> None:
        if self._drain.is_draining:
            raise ShuttingDown("This gateway is stopping. Try again in a moment.", retry_after_s=_RETRY_S)

    def ranking_named(self, name: str | None) -> Ranking:
        """None: the gateway's default. Raises InvalidField."""
        wanted = self._default_ranking if name is None else name
        try:
            return RANKINGS[wanted]
        except KeyError:
            raise InvalidField(
                f"There is no policy {wanted[:40]!r}. Policies: {', '.join(RANKINGS)}.", param=RANKING_HEADER
            ) from None

    def route(self, model: str, principal: Principal, *, header: str | None, provider: bytes) -> Routing:
        """One policy of what network, account, key and request say. Raises what a client should hear."""
        return route(
            model,
            header=header,
            provider=provider,
            who=principal,
            network=self._network_policy,
            is_model=self.table.has_model,
        )

    def new_match_id(self) -> MatchId:
        return MatchId(new_id("match", rng=self._rng))

    def price_cap(self, policy: Policy, model: ModelId) -> TokenPrice | None:
        """What a request can cost at most, per million tokens; None on a network without books.

        What the request, its key or its account allow; where they say nothing, a few times the usual price.
        """
        if self.metering is None:
            return None
        usual, asked = self._prices.of(model), policy.max_price
        if asked is None:
            return usual
        prompt = usual.prompt if asked.prompt is None else Nano(asked.prompt)
        completion = usual.completion if asked.completion is None else Nano(asked.completion)
        return TokenPrice(prompt, completion)

    def gate(
        self,
        policy: Policy,
        model: ModelId,
        *,
        price: TokenPrice | None,
        payer: AccountId | None,
        needs: RequiredCapabilities,
    ) -> PolicyGate | None:
        """Which nodes may serve: allowed by the policy, able to, and not dearer than what is held.

        `payer`: an account that pays with free credits, whose own nodes may not earn them.
        """
        usual = _unnamed_part(policy, price) if price is not None else None
        return self._eligibility.gate(policy, model, payer=payer, usual=usual, needs=needs)


def _unnamed_part(policy: Policy, price: TokenPrice) -> MaxPrice | None:
    """The part of a price cap that the policy does not name itself; None if it names all."""
    asked = policy.max_price
    if asked is None:
        return MaxPrice(price.prompt, price.completion)
    if asked.prompt is not None and asked.completion is not None:
        return None
    return MaxPrice(
        price.prompt if asked.prompt is None else None, price.completion if asked.completion is None else None
    )
