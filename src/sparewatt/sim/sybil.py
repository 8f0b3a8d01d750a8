"""An owner who cheats under many new identities: what garbage is paid for, against what is forfeited.

An identity answers a share of its jobs with garbage, at no cost, perhaps after it has passed some checks honestly.
Checks are frequent until a few were passed, and rare after; one of a garbage answer fails unless it is missed. Pay is
withheld until the next passed check. After a failed one only checks come; if one of these fails as well, what was
earned since the last passed check is forfeited and the identity is over. Whoever comes back begins anew.

With p the odds that a check ends an identity, and c the rate of checks, garbage is paid (1 - p) / p times, share / c
jobs each, and 1 / c jobs are forfeited. The lie loses if share * (1 - p) < p, however many identities there are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sparewatt.core.rng import Rng


@dataclass(frozen=True, slots=True, kw_only=True)
class SybilSetting:
    identities: int = 100
    garbage_share: float = 1.0
    honest_passes: int = 0
    """Checks that an identity passes before it begins to cheat."""
    first_passes: int = 3
    first_rate: float = 0.5
    later_rate: float = 0.005
    second_checks: int = 1
    """After a failed one. All of them have to be passed."""
    missed: float = 0.02
    """Checks that pass a garbage answer."""
    job_micro: int = 100
    jobs_max: int = 20_000
    """Of one identity; who was not caught by then gets what is withheld."""


@dataclass(slots=True)
class SybilOutcome:
    jobs: int = 0
    garbage_jobs: int = 0
    paid_micro: int = 0
    """Released to the owner, for honest answers as well."""
    garbage_paid_micro: int = 0
    forfeited_micro: int = 0
    caught: int = 0
    """Identities."""

    @property
    def gain_micro(self) -> int:
        """What cheating brought, less what it cost."""
        return self.garbage_paid_micro - self.forfeited_micro


def simulate_sybil(setting: SybilSetting, rng: Rng) -> SybilOutcome:
    outcome = SybilOutcome()
    for _ in range(setting.identities):
        _Identity(setting, rng, outcome).live()
    return outcome


class _Identity:
    def __init__(self, setting: SybilSetting, rng: Rng, outcome: SybilOutcome) -> None:
        self._setting, self._rng, self._outcome = setting, rng, outcome
        self._done = self._passed = self._passed_in_all = 0

    def live(self) -> None:
        setting, outcome = self._setting, self._outcome
        while self._done < setting.jobs_max:
            until_check = self._jobs_until_check()
            jobs = min(until_check, setting.jobs_max - self._done)
            garbage = self._garbage_among(jobs)
            self._done += jobs
            outcome.jobs += jobs
            outcome.garbage_jobs += garbage
            if jobs == until_check and self._fails():
                self._passed = 0
                if any(self._fails() for _ in range(setting.second_checks)):
                    outcome.forfeited_micro += jobs * setting.job_micro
                    outcome.caught += 1
                    return
            self._passed += 1
            self._passed_in_all += 1
            outcome.paid_micro += jobs * setting.job_micro
            outcome.garbage_paid_micro += garbage * setting.job_micro

    @property
    def _share(self) -> float:
        return self._setting.garbage_share if self._passed_in_all >= self._setting.honest_passes else 0.0

    def _jobs_until_check(self) -> int:
        """Up to and with the next that is checked."""
        setting = self._setting
        rate = setting.first_rate if self._passed < setting.first_passes else setting.later_rate
        return 1 + int(math.log(1.0 - self._rng.random()) / math.log(1.0 - rate))

    def _garbage_among(self, jobs: int) -> int:
        share = self._share
        return jobs if share >= 1.0 else sum(self._rng.random() < share for _ in range(jobs)) if share else 0

    def _fails(self) -> bool:
        return self._rng.random() < self._share * (1.0 - self._setting.missed)
