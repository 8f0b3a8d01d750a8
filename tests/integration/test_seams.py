"""A node dies, or falls silent, in the middle of answers: nobody who reads them can tell."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparewatt.postgres.server import EmbeddedPostgres
from tests.integration.seams import Arena, Blow, Round, arena, check_books, check_seams, play

STREAMS = 20


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory, server: EmbeddedPostgres) -> Iterator[Arena]:
    with arena(tmp_path_factory.mktemp("seams"), server=server) as found:
        yield found


@pytest.fixture(scope="module")
def rounds() -> list[Round]:
    """Every round that was played, for the books."""
    return []


@pytest.mark.parametrize("blow", ["kill two"])
def test_no_stream_breaks(mortal: Arena, rounds: list[Round], blow: Blow) -> None:
    mortal.revive()
    done = play(mortal, blow, streams=STREAMS, number=len(rounds))
    rounds.append(done)
    assert done.faults == {}
    assert done.moved > 0
    check_seams(mortal, done)


def test_the_books_agree_with_what_clients_have(mortal: Arena, rounds: list[Round]) -> None:
    assert check_books(mortal, rounds)["jobs"] == STREAMS * len(rounds)
