"""`sparewatt node why --trust`: a node's tier, record, last reward and checks, with what each follows from."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient, path_of
from sparewatt.cli.output import Column, left, right
from sparewatt.cli.verdicts import print_checks
from sparewatt.core.money import format_usd
from sparewatt.protocol.api.checks import NodeChecks
from sparewatt.protocol.api.trust import FacetReport, NodeTrust, TierTerm

PPM_PER_PERCENT = 10_000
UNIT = 10**6


def show_trust(client: ApiClient, name: str, *, as_json: bool) -> None:
    trust, checks = client.get(path_of("nodes", name, "trust")), client.get(path_of("nodes", name, "checks"))
    if as_json:
        output.print_json({"trust": trust.parse(dict[str, Any]), "checks": checks.parse(dict[str, Any])})
        return
    print_trust(trust.parse(NodeTrust))
    print()
    print_checks(checks.parse(NodeChecks))


def print_trust(report: NodeTrust) -> None:
    tier = report.tier
    output.print_facts(
        [
            ("Node", report.name),
            ("ID", report.node),
            ("Tier", tier.tier),
            ("Reputation", _percent(report.reputation_ppm)),
            ("Half-life", f"{report.half_life_days} days"),
        ]
    )
    print()
    _print_facets(report.facets)
    for title, terms in (("Keeps its tier by", tier.keeps), (f"For the tier {tier.next_tier}", tier.wants)):
        if terms is not UNSET and terms:
            print()
            output.print_lines([f"{title}:", *(f"  {_mark(term)} {term.text}" for term in terms)])
    _print_reward(report)
    if report.sentences is not UNSET:
        print()
        output.print_lines(report.sentences)


def _print_facets(facets: list[FacetReport]) -> None:
    columns: list[Column[FacetReport]] = [
        left("FACET", lambda facet: facet.name),
        right("SCORE", lambda facet: _percent(facet.score_ppm)),
        right("LOWER", lambda facet: _percent(facet.lower_ppm)),
        right("GOOD", lambda facet: "" if facet.good is UNSET else f"{facet.good / UNIT:.2f}"),
        right("BAD", lambda facet: "" if facet.bad is UNSET else f"{facet.bad / UNIT:.2f}"),
        left("WHAT COUNTS", lambda facet: facet.rule),
    ]
    output.print_table(columns, facets, may_drop=("WHAT COUNTS", "GOOD", "BAD"))


def _print_reward(report: NodeTrust) -> None:
    if report.reward is UNSET or report.era is UNSET:
        return
    reward = report.reward
    total = output.format_usd(format_usd(reward.total_micro * 1_000))
    factors = (
        f"  verified {reward.verified_units / UNIT:.3f} of {reward.claimed_units / UNIT:g} units, "
        f"by tier {reward.tier_ppm / UNIT:g}, up {_percent(reward.availability_ppm)}, "
        f"ramp {_percent(reward.ramp_ppm)}, quality {_percent(reward.quality_ppm)}; "
        f"'sparewatt rewards show {report.era}' shows all nodes."
    )
    print()
    output.print_lines([f"Era {report.era} gave {total}: {reward.why}", factors])


def _mark(term: TierTerm) -> str:
    return "✓" if term.met else "✗"


def _percent(ppm: int) -> str:
    return f"{ppm / PPM_PER_PERCENT:.1f} %"
