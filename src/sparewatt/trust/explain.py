"""Why a node's record changed, and what would change its tier, in sentences. Pure.

Every sentence names its inputs: what was counted in the last days, against the record of a week ago.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparewatt.trust.node_record import PPM, NodeRecord, RecordDay, TimedSpeed, record_of
from sparewatt.trust.tiers import TierDecision

WEEK_DAYS = 7
MOVED_PPM = PPM // 200
"""Half a percent: less is not worth a sentence."""
RULES = {
    "availability": "Hours up against hours observed; pauses are not observed.",
    "completion": "Jobs of other accounts, a tenth each and more by what was paid, 25 per payer and era at most.",
    "correctness": "Checks of its answers; a failed one outweighs twenty that were passed.",
    "speed": "What gateways timed against what the node says of itself.",
    "leases": "Terms of leases on the chain: an hour and a dollar make one, a failed one costs one.",
}


def trust_sentences(
    days: Sequence[RecordDay], speeds: Sequence[TimedSpeed], decision: TierDecision, *, today: int
) -> list[str]:
    week_ago = today - WEEK_DAYS
    before = record_of([day for day in days if day.day <= week_ago], speeds, today=week_ago)
    now = record_of(days, speeds, today=today)
    recent = [day for day in days if day.day > week_ago]
    return [*_changes(before, now, recent), *_tier_sentences(decision)]


def _changes(before: NodeRecord, now: NodeRecord, recent: Sequence[RecordDay]) -> list[str]:
    sentences = []
    for old, new in zip(before.facets, now.facets, strict=True):
        moved = new.lower_ppm - old.lower_ppm
        if abs(moved) >= MOVED_PPM:
            word = "rose" if moved > 0 else "fell"
            why = _cause(new.name, recent)
            sentences.append(
                f"{new.name.capitalize()} {word} from {_percent(old.lower_ppm)} to {_percent(new.lower_ppm)} "
                f"in a week: {why}."
            )
    return sentences or ["Nothing in its record moved by half a percent in a week."]


def _cause(facet: str, recent: Sequence[RecordDay]) -> str:
    match facet:
        case "availability":
            up, known = sum(day.up_s for day in recent), sum(day.known_s for day in recent)
            return f"up for {up / 3_600:.1f} of {known / 3_600:.1f} hours"
        case "completion":
            bad, good = sum(day.bad_units for day in recent), sum(day.good_units for day in recent)
            if not good and not bad:
                return "no jobs of other accounts, so that older ones are forgotten"
            return f"{good / PPM:.1f} jobs finished and {bad / PPM:.1f} failed, by what was at risk"
        case "correctness":
            passed, failed = sum(day.checks_passed for day in recent), sum(day.checks_failed for day in recent)
            if not passed and not failed:
                return "no checks, so that older ones are forgotten"
            return f"{passed} checks passed, {failed} failed"
        case _:
            return "by the speeds that gateways time"


def _tier_sentences(decision: TierDecision) -> list[str]:
    sentences = [f"Its tier is {decision.tier.value}."]
    if decision.next_tier is not None:
        missing = "; ".join(check.text for check in decision.missing)
        what = f"these are missing: {missing}" if missing else "everything is there, and the next era decides"
        sentences.append(f"For the tier {decision.next_tier.value} {what}.")
    near = [check.text for check in decision.kept if check.have == check.need]
    if near:
        sentences.append(f"It keeps its tier by no margin in this: {'; '.join(near)}.")
    return sentences


def _percent(ppm: int) -> str:
    return f"{ppm / 10_000:.1f} %"
