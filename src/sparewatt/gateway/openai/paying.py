"""Who pays for a request, and how much of an answer they can pay for."""

from __future__ import annotations

from sparewatt.accounts.principal import Principal
from sparewatt.core.ids import AccountId, ModelId
from sparewatt.core.money import Nano
from sparewatt.gateway.openai.call import Call
from sparewatt.gateway.openai.routing import Routing
from sparewatt.gateway.services import Services
from sparewatt.inference.capabilities import NO_NEEDS, Needs
from sparewatt.inference.eligibility import Gate
from sparewatt.inference.matcher.model import MatchJob
from sparewatt.inference.metering.service import Order, Payer, RunningTab
from sparewatt.ledger.budgets import KeyBudget
from sparewatt.ledger.chart import promo_of
from sparewatt.ledger.model import TokenPrice
from sparewatt.policy.model import Policy, Prices

LIMIT_HEADER = "x-sparewatt-output-limit"


def order_for(match: MatchJob, call: Call, price: TokenPrice) -> Order:
    return Order(
        id=match.id,
        model=match.model,
        prompt_tokens=match.prompt_tokens,
        answers=call.answers,
        output_limit=call.output_limit,
        stream=call.stream,
        price=price,
    )


def price_of(policy: Policy, model: ModelId, services: Services) -> TokenPrice | None:
    """What a request can cost at most, per million tokens; None on a network without books."""
    return price_cap(policy, services.prices.of(model)) if services.accounting is not None else None


def gate_for(
    routing: Routing,
    model: ModelId,
    *,
    price: TokenPrice | None,
    payer: AccountId | None,
    services: Services,
    needs: Needs = NO_NEEDS,
) -> Gate | None:
    """Who may serve it: whom its policy allows, who can, who asks no more than what is held; not its payer's own."""
    usual = usual_of(routing.policy, price) if price is not None else None
    return services.eligibility.gate(routing.policy, model, payer=payer, usual=usual, needs=needs)


async def promo_payer(who: Principal, services: Services) -> AccountId | None:
    """The account, if free credits would pay: then its own nodes may not serve. For dry runs, which hold nothing."""
    if services.accounting is None or not services.table.nodes_of(who.account_id):
        return None
    name = promo_of(who.account_id)
    return who.account_id if (await services.database.books.balances([name]))[name] > 0 else None


def usual_of(policy: Policy, price: TokenPrice) -> Prices | None:
    """The part of a price that the policy does not name itself; None if it names all."""
    asked = policy.max_price
    if asked is None:
        return Prices(price.prompt, price.completion)
    if asked.prompt is not None and asked.completion is not None:
        return None
    return Prices(
        price.prompt if asked.prompt is None else None, price.completion if asked.completion is None else None
    )


def price_cap(policy: Policy, usual: TokenPrice) -> TokenPrice:
    """What the request, its key or its account allow; where they say nothing, a few times the usual price."""
    asked = policy.max_price
    if asked is None:
        return usual
    prompt = usual.prompt if asked.prompt is None else Nano(asked.prompt)
    completion = usual.completion if asked.completion is None else Nano(asked.completion)
    return TokenPrice(prompt, completion)


def payer_of(who: Principal) -> Payer:
    key = who.key
    budget = None
    if key is not None and key.budget_nano is not None and key.budget_period is not None:
        budget = KeyBudget(Nano(key.budget_nano), key.budget_period)
    return Payer(who.account_id, who.key_id, budget)


def drop_tab(tab: RunningTab | None) -> None:
    """A job that never started holds nothing; once it has, this does nothing."""
    if tab is not None:
        tab.drop()


def limit_headers(tab: RunningTab | None) -> dict[str, str]:
    """Says where an answer without a limit of its own will be cut, and why."""
    if tab is None or not tab.was_limited:
        return {}
    return {LIMIT_HEADER: f"{tab.output_limit}; reason={tab.why}"}
