"""Tiers of nodes: what promotes a node, what keeps it, and what would change its tier. Pure, whole numbers only.

One table (`TIER_TABLE`) has two rows of terms for each tier above community. A node rises one tier at a time, when all
terms of the next are met; it stays while the terms to keep its tier are met, which are lower, so that a node at the
edge does not go back and forth. A node that loses its tier gets the highest one below whose terms it keeps.

Nothing here is a node's own word. Days, uptime and completion are counted by gateways, without jobs between an account
and its own nodes; checks are the network's; the bond stands on the chain; an attestation is an auditor's.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from sparewatt.core.money import format_usd

PPM = 10**6
_NANO_PER_MICRO = 1_000


class Tier(enum.StrEnum):
    """Lowest first. The words are those of the policy field `tier`."""

    COMMUNITY = "community"
    VERIFIED = "verified"
    DATACENTER = "datacenter"


@dataclass(frozen=True, slots=True, kw_only=True)
class TierTerms:
    """The least of everything but failed checks, of which it is the most."""

    days: int
    """On which gateways saw the node up."""
    uptime_ppm: int
    jobs: int
    """Finished or failed, for other accounts."""
    completion_ppm: int
    checks_passed: int
    checks_failed: int
    bond_micro: int
    attested: bool = False
    """Whether an auditor has to vouch for the specifications."""


@dataclass(frozen=True, slots=True)
class TierRow:
    promote: TierTerms
    keep: TierTerms


TIER_TABLE: Mapping[Tier, TierRow] = {
    Tier.VERIFIED: TierRow(
        promote=TierTerms(
            days=7,
            uptime_ppm=970_000,
            jobs=100,
            completion_ppm=980_000,
            checks_passed=20,
            checks_failed=0,
            bond_micro=10_000_000,
        ),
        keep=TierTerms(
            days=7,
            uptime_ppm=930_000,
            jobs=0,
            completion_ppm=950_000,
            checks_passed=10,
            checks_failed=0,
            bond_micro=5_000_000,
        ),
    ),
    Tier.DATACENTER: TierRow(
        promote=TierTerms(
            days=21,
            uptime_ppm=995_000,
            jobs=500,
            completion_ppm=990_000,
            checks_passed=50,
            checks_failed=0,
            bond_micro=100_000_000,
            attested=True,
        ),
        keep=TierTerms(
            days=21,
            uptime_ppm=985_000,
            jobs=0,
            completion_ppm=970_000,
            checks_passed=25,
            checks_failed=0,
            bond_micro=50_000_000,
            attested=True,
        ),
    ),
}
"""Of the last thirty days. Community asks for nothing."""
WINDOW_DAYS = 30
_ORDER = tuple(Tier)


@dataclass(frozen=True, slots=True, kw_only=True)
class TierFacts:
    """What the network knows of a node, over the last thirty days."""

    days: int = 0
    uptime_ppm: int = 0
    done: int = 0
    failed: int = 0
    checks_passed: int = 0
    checks_failed: int = 0
    bond_micro: int = 0
    attested: bool = False

    @property
    def jobs(self) -> int:
        return self.done + self.failed

    @property
    def completion_ppm(self) -> int:
        """All of none: a node without jobs is held back by how few they are."""
        return PPM * self.done // self.jobs if self.jobs else PPM


@dataclass(frozen=True, slots=True)
class TermCheck:
    """One term against one fact."""

    name: str
    have: int
    need: int
    is_met: bool
    text: str


@dataclass(frozen=True, slots=True)
class TierDecision:
    tier: Tier
    kept: tuple[TermCheck, ...]
    """The terms by which a node has its tier; of community there are none."""
    next_tier: Tier | None
    """None at the top."""
    wanted: tuple[TermCheck, ...]
    """The terms of the next tier, met or not."""

    @property
    def missing(self) -> tuple[TermCheck, ...]:
        """What would promote the node."""
        return tuple(check for check in self.wanted if not check.is_met)


def decide_tier(facts: TierFacts, *, current: Tier) -> TierDecision:
    """The tier after a look at the facts: one up at most, down as far as the terms say."""
    index = _ORDER.index(current)
    if index + 1 < len(_ORDER) and meets(facts, TIER_TABLE[_ORDER[index + 1]].promote):
        return _decision(facts, _ORDER[index + 1])
    while index and not meets(facts, TIER_TABLE[_ORDER[index]].keep):
        index -= 1
    return _decision(facts, _ORDER[index])


def meets(facts: TierFacts, terms: TierTerms) -> bool:
    return all(check.is_met for check in check_terms(facts, terms))


def check_terms(facts: TierFacts, terms: TierTerms) -> tuple[TermCheck, ...]:
    """Every term, with the sentence that an owner reads."""
    attested = _least("attestation", int(facts.attested), int(terms.attested), "an auditor vouches for the machine")
    return (
        _least("days", facts.days, terms.days, f"seen up on {facts.days} of {terms.days} days"),
        _least("uptime", facts.uptime_ppm, terms.uptime_ppm, _shares("up", facts.uptime_ppm, terms.uptime_ppm)),
        _least("jobs", facts.jobs, terms.jobs, f"{facts.jobs} of {terms.jobs} jobs for other accounts"),
        _least(
            "completion",
            facts.completion_ppm,
            terms.completion_ppm,
            _shares("jobs finished", facts.completion_ppm, terms.completion_ppm),
        ),
        _least(
            "checks_passed",
            facts.checks_passed,
            terms.checks_passed,
            f"{facts.checks_passed} of {terms.checks_passed} checks passed",
        ),
        TermCheck(
            "checks_failed",
            facts.checks_failed,
            terms.checks_failed,
            facts.checks_failed <= terms.checks_failed,
            f"{facts.checks_failed} checks failed, at most {terms.checks_failed}",
        ),
        _least("bond", facts.bond_micro, terms.bond_micro, _dollars(facts.bond_micro, terms.bond_micro)),
        *((attested,) if terms.attested else ()),
    )


def _decision(facts: TierFacts, tier: Tier) -> TierDecision:
    kept = check_terms(facts, TIER_TABLE[tier].keep) if tier in TIER_TABLE else ()
    index = _ORDER.index(tier) + 1
    if index == len(_ORDER):
        return TierDecision(tier, kept, None, ())
    following = _ORDER[index]
    return TierDecision(tier, kept, following, check_terms(facts, TIER_TABLE[following].promote))


def _least(name: str, have: int, need: int, text: str) -> TermCheck:
    return TermCheck(name, have, need, have >= need, text)


def _shares(what: str, have_ppm: int, need_ppm: int) -> str:
    return f"{what} {have_ppm / 10_000:.2f} %, at least {need_ppm / 10_000:g} %"


def _dollars(have_micro: int, need_micro: int) -> str:
    have, need = (format_usd(micro * _NANO_PER_MICRO) for micro in (have_micro, need_micro))
    return f"a bond of ${have}, at least ${need}"
