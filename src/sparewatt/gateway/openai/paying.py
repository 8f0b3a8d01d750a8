"""Who pays for a request, and how much of an answer they can pay for."""

from __future__ import annotations

from sparewatt.accounts.principal import Principal
from sparewatt.core.money import Nano
from sparewatt.gateway.services import Services
from sparewatt.inference.matcher.model import MatchJob
from sparewatt.inference.metering.service import Order, Payer, RunningTab
from sparewatt.ledger.budgets import KeyBudget
from sparewatt.ledger.model import TokenPrice
from sparewatt.policy.model import Policy
from sparewatt.protocol.openai import ChatRequest

LIMIT_HEADER = "x-sparewatt-output-limit"


async def open_tab(
    match: MatchJob, chat: ChatRequest, policy: Policy, *, who: Principal, services: Services
) -> RunningTab | None:
    """Hold what the answer may cost; None on a network without books. Raises what a client should hear."""
    if services.accounting is None:
        return None
    order = Order(
        id=match.id,
        model=match.model,
        prompt_tokens=match.prompt_tokens,
        answers=chat.n or 1,
        output_limit=chat.output_limit,
        stream=bool(chat.stream),
        price=price_cap(policy, services.prices.of(match.model)),
    )
    return await services.accounting.metering.open(payer_of(who), order)


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
    why = "credits" if tab.is_short else "default"
    return {LIMIT_HEADER: f"{tab.output_limit}; reason={why}"}
