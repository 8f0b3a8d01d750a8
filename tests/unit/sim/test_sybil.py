"""Many identities: who sends garbage alone forfeits more than it is paid; mixing it in is worth what the rule says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparewatt.core.rng import seeded
from sparewatt.sim.sybil import SybilOutcome, SybilSetting, simulate_sybil

GARBAGE = SybilSetting()
CAREFUL = SybilSetting(honest_passes=3)


def outcome(setting: SybilSetting, *, seed: int = 1) -> SybilOutcome:
    return simulate_sybil(setting, seeded(seed))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("setting", [GARBAGE, CAREFUL])
def test_a_hundred_identities_that_send_garbage_earn_less_than_they_forfeit(setting: SybilSetting, seed: int) -> None:
    found = outcome(setting, seed=seed)
    assert found.caught == 100
    assert found.garbage_paid_micro < found.forfeited_micro
    assert found.gain_micro < 0


def test_who_passes_the_first_checks_honestly_is_paid_for_that_work_alone() -> None:
    found = outcome(replace(CAREFUL, missed=0.0))
    assert found.garbage_paid_micro == 0
    assert 0 < found.paid_micro < found.forfeited_micro // 10


def test_an_honest_identity_is_paid_all_and_never_caught() -> None:
    found = outcome(replace(GARBAGE, garbage_share=0.0, identities=3))
    assert (found.caught, found.forfeited_micro, found.garbage_jobs) == (0, 0, 0)
    assert found.paid_micro == 3 * GARBAGE.jobs_max * GARBAGE.job_micro


def test_more_identities_change_nothing_about_the_sign() -> None:
    assert all(outcome(replace(CAREFUL, identities=count)).gain_micro < 0 for count in (5, 100, 500))


def test_garbage_among_honest_answers_pays_where_one_more_check_decides_and_not_where_many_do() -> None:
    """The limit of the rule, kept in sight: half of the answers garbage, one second check or eight."""
    mixed = replace(CAREFUL, garbage_share=0.5, identities=300)
    assert outcome(mixed).gain_micro > 0
    assert outcome(replace(mixed, second_checks=8)).gain_micro < 0
