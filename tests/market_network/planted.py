"""Copies of the core with one bug planted in each: the text of a module is changed and loaded under another name.

The text to be changed must be there exactly once, so a change of the core that moves it is noticed.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sparewatt import market
from tests.market_network.world import Core

SHARED = frozenset({"__init__", "model", "record", "replay", "evidence_pool", "context"})
"""Modules of types, which the simulation and the copy must agree on, and those that judge the copy."""
RULES = ("quorum", "rule", "coverage")
_IMPORT = re.compile(r"from sparewatt\.market\.(match\.)?(\w+) import")


@dataclass(frozen=True)
class Bug:
    name: str
    module: str
    old: str
    new: str
    found_as: tuple[str, ...]
    """Beginnings of the violations that give it away."""
    seed: int
    """A run that found it; if the core has changed, others are tried."""


@contextmanager
def planted(bug: Bug, folder: Path) -> Iterator[Core]:
    package = f"planted_{re.sub(r'[^a-z0-9]+', '_', bug.name.lower())}"
    root = Path(market.__path__[0])
    sources = {path.stem: path.read_text() for path in sorted((root / "match").glob("*.py")) if path.stem not in SHARED}
    sources |= {name: (root / f"{name}.py").read_text() for name in RULES}
    assert sources[bug.module].count(bug.old) == 1, f"{bug.name}: the text is not in {bug.module} exactly once"
    sources[bug.module] = sources[bug.module].replace(bug.old, bug.new)
    (folder / package).mkdir()
    (folder / package / "__init__.py").touch()
    for name, text in sources.items():
        (folder / package / f"{name}.py").write_text(_IMPORT.sub(lambda found: _own(found, sources, package), text))
    sys.path.insert(0, str(folder))
    try:
        yield Core(
            importlib.import_module(f"{package}.validator_match").ValidatorMatch,
            importlib.import_module(f"{package}.provider_match").ProviderMatch,
        )
    finally:
        sys.path.remove(str(folder))
        for name in [each for each in sys.modules if each.split(".")[0] == package]:
            del sys.modules[name]


def _own(found: re.Match[str], sources: dict[str, str], package: str) -> str:
    return f"from {package}.{found[2]} import" if found[2] in sources else found[0]
