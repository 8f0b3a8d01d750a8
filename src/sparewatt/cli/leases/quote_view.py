"""How a quote is shown: offers, prices beside a cloud's, what is held, and why nobody could serve it."""

from __future__ import annotations

from decimal import Decimal

from sparewatt.cli import output
from sparewatt.cli.output import Column, left, right
from sparewatt.protocol.api.leases import LeaseQuote, StandingOffer
from sparewatt.protocol.api.nodes import PolicyFilterStep

OFFERS_PRINTED = 10


def duration_text(seconds: float) -> str:
    for unit_s, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= unit_s:
            return f"{seconds / unit_s:.4g} {unit}"
    return f"{seconds:.4g} s"


def print_quote(quote: LeaseQuote, *, numbered: bool = False) -> None:
    if quote.able:
        print_offers(quote.offers if numbered else quote.offers[:OFFERS_PRINTED], numbered=numbered)
    else:
        print_refusals(quote)
    _print_prices(quote)
    output.print_lines(quote.notes)


def print_offers(offers: list[StandingOffer], *, numbered: bool) -> None:
    places = {offer.provider: number for number, offer in enumerate(offers, start=1)}
    output.print_title("Standing offers, cheapest first (claimed by the providers)")
    columns: list[Column[StandingOffer]] = [
        *([right("#", lambda offer: str(places[offer.provider]))] if numbered else []),
        left("PROVIDER", lambda offer: offer.provider[:18]),
        left("NODE", lambda offer: offer.name or output.UNKNOWN),
        left("PLACE", lambda offer: offer.place or output.UNKNOWN),
        left("GPU", _gpu),
        right("PER HOUR", lambda offer: output.format_usd(offer.hourly_usd)),
        right("FREE BOND", lambda offer: output.format_usd(offer.free_bond_usd)),
    ]
    output.print_table(columns, offers, may_drop=("FREE BOND", "PLACE", "NODE"))


def print_refusals(quote: LeaseQuote) -> None:
    """Where each provider failed, and what would help."""
    output.print_title(f"None of {quote.providers} active providers could serve this order")
    if quote.funnel:
        columns: list[Column[PolicyFilterStep]] = [
            left("CONDITION", lambda step: step.filter),
            right("RULES OUT", lambda step: str(step.dropped)),
            right("LEFT", lambda step: str(step.left)),
        ]
        output.print_table(columns, quote.funnel)
    output.print_lines(f"It would help: {each}" for each in quote.nearest_relaxations)
    if not quote.nearest_relaxations:
        output.print_lines(["No change of one field of the order would help."])


def _gpu(offer: StandingOffer) -> str:
    if not offer.gpu_count:
        return "none"
    memory = f" {offer.vram_gb} GB" if offer.vram_gb else ""
    return f"{offer.gpu_count} x {offer.gpu or 'other'}{memory}"


def _print_prices(quote: LeaseQuote) -> None:
    facts: list[tuple[str, str]] = []
    if quote.prices is not None:
        low, high = output.format_usd(quote.prices.least_usd), output.format_usd(quote.prices.dearest_usd)
        facts.append(("Offered", f"{low} to {high} an hour, all-in ({quote.able} of {quote.providers} providers)"))
    facts += [
        (
            "In a cloud",
            f"{output.format_usd(each.hourly_usd)} an hour and GPU: {each.cloud} {each.instance}, {each.as_of}",
        )
        for each in quote.cloud_prices
    ]
    if quote.cloud_note:
        facts.append(("", quote.cloud_note))
    if quote.max_hourly_usd is not None and quote.deposit_usd is not None:
        source = "1.25 times the dearest offer that fits" if quote.max_hourly_source == "offers" else "as you said"
        facts.append(("Highest price", f"{output.format_usd(quote.max_hourly_usd)} an hour ({source})"))
        facts.append(("Duration", duration_text(quote.duration_s)))
        facts.append(("Deposit", _deposit(quote)))
    output.print_lines([""])
    if facts:
        output.print_facts(facts)
    output.print_lines(f"Source: {source}" for source in sorted({each.source for each in quote.cloud_prices}))


def _deposit(quote: LeaseQuote) -> str:
    each = f"{output.format_usd(quote.deposit_usd)}"
    if quote.count > 1:
        each = f"{output.format_usd(quote.total_usd)} ({quote.count} x {each})"
    covers = f"lasts {duration_text(quote.covers_s or 0)} at the highest price"
    return f"{each}, held from your credits; {covers}, and no lease costs more"


def cost_text(hourly_usd: str, duration_s: int) -> str:
    """What the whole duration costs at a price."""
    return output.format_usd(Decimal(hourly_usd) * duration_s / 3_600)
