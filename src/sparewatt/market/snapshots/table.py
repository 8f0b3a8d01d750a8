"""The table of an epoch: one profile per ACTIVE provider, from chain facts and what validators published. Pure.

Each number is the stake-weighted lower median of what was published. If less than a quorum published it, the last
epoch's value stays, and without one the newcomer's prior. So validators with less than a third of the stake can move no
number beyond what an honest one saw, and cannot make one by silence either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import NamedTuple, assert_never

from sparewatt.market.quorum import is_quorum, lower_median, most_stake
from sparewatt.market.snapshots.chain_facts import compliance_at, tier_at
from sparewatt.market.snapshots.model import ChainFacts, ProviderFacts
from sparewatt.protocol.contracts.match import Observation, Observations, Profile
from sparewatt.protocol.contracts.message_ranges import PPM, ZONE_AS_CLAIMED
from sparewatt.trust.lease_record import NEWCOMER_REPUTATION_PPM, NEWCOMER_UPTIME_PPM

SMALL_PPM = PPM // 100
LARGE_PPM = PPM // 10
SMALL_SPACINGS = 6
"""A small change waits that many times the least time between two epochs: a minute locally, an hour on a public net."""
EPOCH_S_MAX = 86_400
"""There is a new epoch at least once a day."""


class TableChange(IntEnum):
    """How much a table differs from the last one: by its largest difference."""

    NOTHING = 0
    """No number moved by one percent."""
    SMALL = 1
    """An uptime or a reputation moved by at least one percent (of the whole, not of itself)."""
    LARGE = 2
    """Providers came or went, a fact of the chain changed, or a number moved by at least ten percent."""


def table_of(
    facts: ChainFacts, published: Mapping[str, Observations], *, epoch: int, previous: Sequence[Profile]
) -> tuple[Profile, ...]:
    """`published`: by vote key; what one without weight at the block says counts nothing."""
    total = sum(facts.weights.values())
    rows: dict[str, list[tuple[Observation, int]]] = {}
    for signer, observations in published.items():
        weight = facts.weights.get(signer, 0)
        for row in observations.rows if weight else ():
            rows.setdefault(row.provider.lower(), []).append((row, weight))
    last = {profile.provider.lower(): profile for profile in previous}
    return tuple(
        _profile(
            provider,
            _numbers(rows.get(provider.provider, []), total=total, last=last.get(provider.provider)),
            unix_s=facts.unix_s,
            epoch=epoch,
        )
        for provider in facts.providers
    )


def change_of(previous: Sequence[Profile], table: Sequence[Profile]) -> TableChange:
    if [_facts_only(profile) for profile in previous] != [_facts_only(profile) for profile in table]:
        return TableChange.LARGE
    moved = max((_moved(*pair) for pair in zip(previous, table, strict=True)), default=0)
    if moved >= LARGE_PPM:
        return TableChange.LARGE
    return TableChange.SMALL if moved >= SMALL_PPM else TableChange.NOTHING


def is_due(change: TableChange, *, age_s: int, spacing_s: int) -> bool:
    """Whether a table that differs so much from the last, posted `age_s` ago, is worth an epoch.

    Each validator asks it of its own observations. Once more than a third publish, the epoch is made, whatever its
    medians are: else those who have published would be bound to what they saw then.
    """
    match change:
        case TableChange.LARGE:
            return age_s >= spacing_s
        case TableChange.SMALL:
            return age_s >= SMALL_SPACINGS * spacing_s
        case TableChange.NOTHING:
            return age_s >= EPOCH_S_MAX
    assert_never(change)


class _Numbers(NamedTuple):
    uptime_ppm: int
    reputation_ppm: int
    zone: int


_NEWCOMER = _Numbers(NEWCOMER_UPTIME_PPM, NEWCOMER_REPUTATION_PPM, ZONE_AS_CLAIMED)


def _numbers(rows: list[tuple[Observation, int]], *, total: int, last: Profile | None) -> _Numbers:
    """What validators agree on; `rows` with the weight of those that published them."""
    if is_quorum(sum(weight for _, weight in rows), total=total):
        return _Numbers(
            uptime_ppm=lower_median([(row.uptime_ppm, weight) for row, weight in rows]),
            reputation_ppm=lower_median([(row.reputation_ppm, weight) for row, weight in rows]),
            zone=most_stake([(row.zone, weight) for row, weight in rows]),
        )
    return _NEWCOMER if last is None else _Numbers(last.uptime_ppm, last.reputation_ppm, last.zone)


def _profile(facts: ProviderFacts, numbers: _Numbers, *, unix_s: int, epoch: int) -> Profile:
    return Profile(
        provider=facts.provider,
        epoch=epoch,
        country=facts.country,
        zone=facts.zone if numbers.zone == ZONE_AS_CLAIMED else numbers.zone,
        tier=tier_at(facts, unix_s),
        gpu_model=facts.gpu_model,
        gpu_class=facts.gpu_class,
        vram_gb=facts.vram_gb,
        gpu_units=facts.gpu_units,
        compliance=compliance_at(facts, unix_s),
        uptime_ppm=numbers.uptime_ppm,
        reputation_ppm=numbers.reputation_ppm,
    )


def _facts_only(profile: Profile) -> Profile:
    return replace(profile, epoch=0, uptime_ppm=0, reputation_ppm=0)


def _moved(left: Profile, right: Profile) -> int:
    return max(abs(left.uptime_ppm - right.uptime_ppm), abs(left.reputation_ppm - right.reputation_ppm))
