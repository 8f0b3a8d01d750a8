"""What an owner reads after joining: the network's names of the models, or what would be worth serving."""

from __future__ import annotations

from typing import Any

import pytest

from sparewatt.node.network_models import name_sentences
from sparewatt.protocol.link.frames import AssignedName, Welcome

FILE = "SmolLM2-135M-Instruct.Q4_1"
WHY = "0.8 GB of weights are about 1.3 billion parameters, and llama-3.1-70b has 70.6"
LIAR = AssignedName("unverified/llama3.1:70b", "llama3.1:70b", WHY)


def welcome(**fields: Any) -> Welcome:
    return Welcome(heartbeat_s=5.0, gateway_version="1", **fields)


@pytest.mark.parametrize(
    ("heard", "has_models", "sentences"),
    [
        (
            welcome(models=(AssignedName("smollm2-135m", FILE), AssignedName("m", "m")), wanted_models=("x",)),
            True,
            [f"serves smollm2-135m ({FILE}), m"],
        ),
        (welcome(), True, []),  # an older gateway
        (welcome(), False, ["serves no model of the network yet"]),
        (
            welcome(wanted_models=("a", "b", "c", "d", "e", "f")),
            False,
            ["serves no model of the network yet", "asked for and served by nobody: a, b, c, d, e"],
        ),
        (
            welcome(models=(LIAR,), wanted_models=("a",)),
            True,
            [
                "serves no model of the network yet",
                f"llama3.1:70b is called unverified/llama3.1:70b: {WHY}",
                "asked for and served by nobody: a",
            ],
        ),
    ],
)
def test_what_is_said_after_joining(heard: Welcome, has_models: bool, sentences: list[str]) -> None:
    assert name_sentences(heard, has_models=has_models) == sentences
