"""What `sparewatt[node]` needs, as a folder of wheels: for a machine that reaches the gateway and nothing else.

Fetched once by the hashes of requirements.lock, and again only when that changes.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.clients.installing import once, run_command

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements.lock"
FOLDER = ROOT / ".venv-wheels"


def node_wheels() -> Path:
    names = node_packages()
    chosen = "".join(block for name, block in _blocks(LOCK.read_text()) if name in names)
    FOLDER.mkdir(exist_ok=True)
    subset = FOLDER / "node.lock"
    if not subset.is_file() or subset.read_text() != chosen:
        subset.write_text(chosen)

    def fetch() -> None:
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q", "--only-binary=:all:")
        run_command(*pip, "--require-hashes", "--no-deps", "-r", str(subset), "-d", str(FOLDER))

    once(fetch, stamp=FOLDER / ".fetched", inputs=[subset])
    return FOLDER


def node_packages() -> set[str]:
    """Everything that `pip install sparewatt[node]` brings along here, by what the installed packages say."""
    found: set[str] = set()
    waiting: list[tuple[str, frozenset[str]]] = [("sparewatt", frozenset({"node"}))]
    while waiting:
        name, extras = waiting.pop()
        for text in distribution(name).requires or ():
            needed = Requirement(text)
            if needed.marker and not any(needed.marker.evaluate({"extra": extra}) for extra in (*extras, "")):
                continue
            short = canonicalize_name(needed.name)
            if short not in found and short != "sparewatt":
                found.add(short)
                waiting.append((short, frozenset(needed.extras)))
    return found


def _blocks(lock: str) -> list[tuple[str, str]]:
    """Each package of a lock file with its hashes."""
    starts = [match.start() for match in re.finditer(r"^[A-Za-z0-9]", lock, re.MULTILINE)]
    pieces = [lock[at:to] for at, to in zip(starts, [*starts[1:], len(lock)], strict=True)]
    return [(canonicalize_name(piece.split("==", 1)[0]), piece) for piece in pieces]
