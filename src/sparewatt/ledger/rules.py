"""Every decision about money, as pure functions: what a job costs, who gets what, and the postings that say so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise

from sparewatt.core.errors import UnbalancedEntry
from sparewatt.core.ids import AccountId
from sparewatt.core.money import Nano, token_cost
from sparewatt.ledger import chart
from sparewatt.ledger.fees import inference_fee
from sparewatt.ledger.model import Amount, Bill, ClosedJob, Delivery, Posting, RevenueSplit, TokenPrice

TOKENS_PER_PRICE = 1_000_000
OUTPUT_TOKENS_DEFAULT = 4_096
"""What is held, and at most written, for a request that sets no limit of its own."""


def hold_for(price: TokenPrice, *, prompt_tokens: int, output_tokens: int) -> Nano:
    """What a job can cost at most. Rounded up: a hold must never fall short."""
    return Nano(-(-(prompt_tokens * price.prompt + output_tokens * price.completion) // TOKENS_PER_PRICE))


def affordable_output_tokens(price: TokenPrice, *, prompt_tokens: int, nano: int) -> int | None:
    """How many tokens of output `nano` pays for; None if there is no bound, as for a free model."""
    left = nano * TOKENS_PER_PRICE - prompt_tokens * price.prompt
    if left < 0:
        return 0
    return left // price.completion if price.completion else None


def bill(deliveries: Sequence[Delivery], hold: Amount) -> Bill:
    """What was delivered, in money: rounded once, down, never more than was held.

    The prompt is paid once for the whole answer. Nodes that shared the answer share it by the tokens each wrote; where
    nothing was to be written, they share it evenly.
    """
    if len(deliveries) == 1:  # nearly always: the same sum, without the shares
        return _bill_single_delivery(deliveries[0], hold)
    written = sum(delivery.completion_tokens for delivery in deliveries)
    pro_rata_shares = [delivery.completion_tokens if written else 1 for delivery in deliveries]
    whole = max(1, sum(pro_rata_shares))
    worth = accumulate(
        (_worth(delivery, share, whole) for delivery, share in zip(deliveries, pro_rata_shares, strict=True)), initial=0
    )
    # A sum of floors would lose a bit at every seam: the parts are the steps of one rounded sum.
    marks = [min(step // (TOKENS_PER_PRICE * whole), hold.total) for step in worth]
    left, parts = hold, []
    for before, after in pairwise(marks):
        gross, left = left.take(after - before)
        parts.append(_split_fee(gross.promo, gross.paid))
    return Bill(hold - left, tuple(parts))


def _bill_single_delivery(delivery: Delivery, hold: Amount) -> Bill:
    price, promo = delivery.price, hold.promo
    nano = token_cost(
        prompt_tokens=delivery.prompt_tokens,
        completion_tokens=delivery.completion_tokens,
        prompt_price=price.prompt,
        completion_price=price.completion,
    )
    if nano <= promo:
        return Bill(Amount(nano), (_split_fee(nano, 0),))
    paid = min(nano - promo, hold.paid)
    return Bill(Amount(promo, Nano(paid)), (_split_fee(promo, paid),))


def _split_fee(promo: int, paid: int) -> RevenueSplit:
    fee_promo, fee_paid = inference_fee(promo), inference_fee(paid)
    return RevenueSplit(promo - fee_promo, paid - fee_paid, fee_promo, fee_paid)


def _worth(delivery: Delivery, share: int, whole: int) -> int:
    """In nano-USD times a million times `whole`, so that nothing is rounded yet."""
    price = delivery.price
    return delivery.completion_tokens * price.completion * whole + delivery.prompt_tokens * price.prompt * share


def job_postings(closed: ClosedJob, billed: Bill) -> list[Posting]:
    """Payer → the job's clearing account → owners and fees. Empty for a job that cost nothing.

    Raises UnbalancedEntry if what comes in is not what goes out: then there is a bug, and nothing may be posted.
    """
    job, promo, paid = closed.job, billed.cost.promo, billed.cost.paid
    lines: list[Posting] = []
    paid_out = 0
    for delivery, part in zip(closed.deliveries, billed.splits, strict=True):
        paid_out += _add_earning(lines, delivery.owner, part)
    if promo + paid != paid_out:
        raise UnbalancedEntry(f"{job.id} brings in {promo + paid} and pays out {paid_out}")
    if not paid_out:
        return []
    clearing = chart.clearing_of(job.id)
    lines += ((clearing, paid_out), (clearing, -paid_out))
    if promo:
        lines.append((chart.promo_of(job.account), -promo))
    if paid:
        lines.append((chart.credits_of(job.account), -paid))
    return lines


def _add_earning(lines: list[Posting], owner: AccountId, part: RevenueSplit) -> int:
    """Of either class, as far as there is any. Tells how much it is."""
    net_promo, net_paid, fee_promo, fee_paid = part.net_promo, part.net_paid, part.fee_promo, part.fee_paid
    if net_paid:
        lines.append((chart.earned_by(owner), net_paid))
    if fee_paid:
        lines.append((chart.FEES, fee_paid))
    if net_promo:
        lines.append((chart.promo_earned_by(owner), net_promo))
    if fee_promo:
        lines.append((chart.FEES_PROMO, fee_promo))
    return net_promo + net_paid + fee_promo + fee_paid


def balanced(lines: Iterable[Posting]) -> list[Posting]:
    """The same lines, if they sum to zero. Raises UnbalancedEntry: then there is a bug, and nothing may be posted."""
    found = list(lines)
    if sum([nano for _, nano in found]) != 0:
        raise UnbalancedEntry(f"{len(found)} postings do not sum to zero")
    return found


def grant_postings(account: AccountId, nano: Nano) -> list[Posting]:
    """Free credits come from the network's own generosity."""
    return balanced([(chart.promo_of(account), nano), (chart.GRANTS, -nano)])


def expiry_postings(account: AccountId, nano: Nano) -> list[Posting]:
    return balanced([(chart.promo_of(account), -nano), (chart.GRANTS, nano)])


def deposit_postings(account: AccountId, nano: Nano) -> list[Posting]:
    return balanced([(chart.credits_of(account), nano), (chart.DEPOSITS, -nano)])


def treasury_postings(nano: Nano) -> list[Posting]:
    return balanced([(chart.TREASURY, nano), (chart.DEPOSITS, -nano)])


def redemption_postings(owner: AccountId, nano: Nano) -> list[Posting]:
    """Promo income becomes payable, out of the treasury; the free credits behind it are thereby used up."""
    return balanced(
        [
            (chart.promo_earned_by(owner), -nano),
            (chart.GRANTS, nano),
            (chart.TREASURY, -nano),
            (chart.earned_by(owner), nano),
        ]
    )


def payout_postings(owner: AccountId, nano: Nano) -> list[Posting]:
    return balanced([(chart.earned_by(owner), -nano), (chart.PAYOUTS, nano)])


def expired_promo(balance: int, unexpired_grants: Iterable[int], *, reserved: int = 0) -> Nano:
    """What is left of grants that have run out: the oldest credits are spent first, so the newest remain.

    What gateways have reserved may be spent already, and counts as such; what they give back expires the next time.
    """
    return Nano(max(0, balance - reserved - sum(unexpired_grants)))


def treasury_allowance(*, daily: int, day_part: float, redeemed_today: int, treasury: int) -> Nano:
    """What may be redeemed now. A day's budget comes free as the day goes: nobody takes it all at midnight."""
    released = int(daily * min(1.0, max(0.0, day_part)))
    return Nano(max(0, min(released - redeemed_today, treasury)))


def pro_rata_shares(owed: Mapping[AccountId, Nano], budget: int) -> dict[AccountId, Nano]:
    """A budget split by what each is owed: nobody gets more than that, and nothing is left while somebody is owed.

    Rounded down; what that leaves goes, one each, to those who lost most by it (then by name).
    """
    total = sum(owed.values())
    if budget >= total:
        return {owner: nano for owner, nano in owed.items() if nano > 0}
    if budget <= 0:
        return {}
    parts = {owner: divmod(nano * budget, total) for owner, nano in owed.items()}
    left = budget - sum(whole for whole, _ in parts.values())
    favoured = set(sorted(parts, key=lambda owner: (-parts[owner][1], owner))[:left])
    found = {owner: Nano(whole + (owner in favoured)) for owner, (whole, _) in parts.items()}
    return {owner: nano for owner, nano in found.items() if nano > 0}
