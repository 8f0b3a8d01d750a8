"""Whatever reads bytes from outside knows them or refuses them: good input broken a little, the same cases every time.

The soak goes on where this ends (tests/soak/test_fuzz.py). FAULTS are inputs that once broke something.
"""

from __future__ import annotations

import random

import pytest

from tests.mutation import mutated
from tests.property.parsers import PARSERS, Parser, fuzz

CASES = 400
FAULTS: dict[str, tuple[bytes, ...]] = {
    # answered twice
    "connection": (b"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: unked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",),
}


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.name)
def test_good_input_broken_a_little_is_known_or_refused(parser: Parser) -> None:
    for seed in range(CASES):
        fuzz(parser, seed, mutated)


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.name)
def test_the_seeds_are_no_failures_themselves(parser: Parser) -> None:
    for data in (*parser.seeds, *FAULTS.get(parser.name, ()), b"", b"\x00" * 1000):
        parser.read(data, random.Random(1))  # noqa: S311 (repeatable)
