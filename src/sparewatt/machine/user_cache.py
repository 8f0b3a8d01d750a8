"""Files that a network fetches once per user: each is a folder of the cache that is complete or absent."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from sparewatt.core.errors import StartupError


def cache_dir(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "sparewatt"


@contextmanager
def staged(home: Path, *, otherwise: str) -> Iterator[Path]:
    """A folder to fetch into. It becomes `home` if the body succeeds, and nothing is left of it if not.

    `otherwise` is the end of an error message: what to do if this machine cannot fetch.
    """
    try:
        home.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f"{home.name}-", dir=home.parent))
    except OSError as error:
        raise StartupError(f"Cannot write to {home.parent}: {error.strerror}. {otherwise}") from None
    try:
        yield staging
        _install(staging, home)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _install(staging: Path, home: Path) -> None:
    try:
        staging.rename(home)
    except OSError:
        if not home.exists():  # another process may have installed the same files meanwhile
            raise
