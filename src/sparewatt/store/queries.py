"""Named SQL statements, read once from queries/*.sql. A statement starts with a line `-- name: some_name`."""

from __future__ import annotations

import functools
import re
from importlib import resources

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


@functools.cache
def _all() -> dict[str, str]:
    found: dict[str, str] = {}
    for file in sorted(resources.files(__package__).joinpath("queries").iterdir(), key=lambda f: f.name):
        pieces = _NAME.split(file.read_text(encoding="utf-8"))
        for name, text in zip(pieces[1::2], pieces[2::2], strict=True):
            if name in found:
                raise ValueError(f"the query {name} is defined twice")
            found[name] = text.strip()
    return found


def sql(name: str) -> str:
    return _all()[name]
