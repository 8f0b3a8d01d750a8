"""Whether a validator may trust its own ears: one that is cut off hears nobody, and not hearing is not dead. Pure."""

from __future__ import annotations

from sparewatt.market.chain_records import MarketState, RegistryStatus
from sparewatt.market.outages.model import Hearing

HOUR_S = 3_600
RECENT_BEATS = 3
"""Who beats is heard at least once in so many. Less than `down_s`: of those that fell silent together, as when this
validator is cut off, none counts as heard any more when the first is judged."""
OTHERS_MIN = 2
"""With fewer other providers, the other validators are the measure."""


def other_providers(state: MarketState, hearing: Hearing, provider: str, *, beat_ms: int) -> tuple[int, int]:
    """How many others were heard in the hour before, and how many of these in the last beats."""
    recently = hearing.unix_s - RECENT_BEATS * beat_ms // 1_000
    heard = [
        hearing.beats.heard_at(each) or 0
        for each, record in state.providers.items()
        if each != provider and record.status is not RegistryStatus.LEFT
    ]
    known = [at for at in heard if at >= recently - HOUR_S]
    return len(known), sum(at >= recently for at in known)


def hears_enough(hearing: Hearing, *, known: int, recent: int) -> bool:
    """At least half of the other providers; where there are fewer than two, of the other validators."""
    if known >= OTHERS_MIN:
        return 2 * recent >= known
    return 2 * hearing.reached_validators >= hearing.validators
