"""Whatever one node does, others are served, wait hardly longer and pay for what they can read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest

from tests.integration.asking import ask
from tests.integration.hostile_nodes.behaviour import Behaviour
from tests.integration.hostile_nodes.catalogue import BEHAVIOURS
from tests.integration.hostile_nodes.honest import AttackedNetwork
from tests.integration.hostile_nodes.judging import Findings

BEHAVIOURS_MIN = 30
MEMORY_BYTES_MAX = 60_000_000
"""For all of them together."""


def test_each_behaviour_has_a_name_of_its_own() -> None:
    names = Counter(behaviour.name for behaviour in BEHAVIOURS)
    assert len(names) == len(BEHAVIOURS) >= BEHAVIOURS_MIN


@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=lambda each: each.name)
def test_others_hardly_notice(played: Mapping[str, Findings], behaviour: Behaviour) -> None:
    if wrong := played[behaviour.name].broken_bounds():
        pytest.fail(f"{behaviour.lie}: {'; '.join(wrong)}", pytrace=False)


def test_those_who_are_asked_for_by_name_get_jobs(played: Mapping[str, Findings]) -> None:
    """Else nothing was tested: a liar that gets no job lies to nobody."""
    idle = [name for name, findings in played.items() if findings.behaviour.is_paid and not findings.jobs_given]
    assert idle == []


def test_the_gateway_has_kept_its_memory(played: Mapping[str, Findings]) -> None:
    waves = {findings.wave: findings.memory_bytes for findings in played.values()}
    assert sum(waves.values()) < MEMORY_BYTES_MAX


def test_the_gateway_has_no_traceback_in_its_log(played: Mapping[str, Findings], attacked: AttackedNetwork) -> None:
    assert "Traceback" not in attacked.network.output.read_text(errors="replace")
    assert ask(attacked.network, "GET", "/readyz", key="").status == 200
