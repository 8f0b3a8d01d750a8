"""A fuzzer that is guided by which branches of the product an input reaches (atheris, over libFuzzer).

Run as a process, since libFuzzer ends the one that it runs in: `python -m tests.soak.guided PART CORPUS OPTION...`.
The first byte of an input chooses among the parsers of a part, the rest is what the parser reads.
"""

from __future__ import annotations

import random
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import atheris

if TYPE_CHECKING:
    from tests.property.parsers import Parser


def parsers_of(part: str) -> list[Parser]:
    """The product is watched from its import on."""
    with atheris.instrument_imports(include=["sparewatt"]):
        from tests.property.parsers import PARSERS
    return [parser for parser in PARSERS if parser.part == part]


def sow(parsers: list[Parser], corpus: Path) -> None:
    """Good input, to begin with."""
    corpus.mkdir(parents=True, exist_ok=True)
    for number, parser in enumerate(parsers):
        for at, seed in enumerate(parser.seeds):
            (corpus / f"seed-{number}-{at}").write_bytes(bytes([number]) + seed)


def main(part: str, corpus: str, *options: str) -> None:
    parsers = parsers_of(part)
    sow(parsers, Path(corpus))

    def read(data: bytes) -> None:
        if data:
            chance = random.Random(zlib.crc32(data))
            parsers[data[0] % len(parsers)].read(data[1:], chance)

    atheris.Setup([sys.argv[0], *options, corpus], read)
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
