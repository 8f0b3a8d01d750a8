"""Hostile clients one after another for as long as it runs: a process, so that it shares no interpreter with others.

`python -m tests.soak.hostile_clients BASE_URL KEY MODEL`
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from tests.integration.hostile.target import Target
from tests.integration.networks import Network
from tests.soak.attacks import ATTACKS

ATTACK_S = 15.0
NICE = 10


def attack_for_ever(target: Target) -> None:
    for attack in itertools.cycle(ATTACKS):
        rounds, until_s = attack.rounds(target), time.monotonic() + ATTACK_S
        with suppress(OSError):  # a gateway may close on who attacks it
            while time.monotonic() < until_s:
                next(rounds)


def main(base_url: str, key: str, model: str) -> None:
    os.nice(NICE)
    network = Network(base_url, key, model, {}, Path(), None, Path())  # type: ignore[arg-type]  # an address is enough
    attack_for_ever(Target(network, key.encode(), key.encode()))


if __name__ == "__main__":
    main(*sys.argv[1:])
