"""Reads YAML or JSON that a person wrote, within bounds, and tells in which line an error is.

Unquoted words stay words: `NO` is Norway, not false. A name that is given twice is an error. Length, nesting and
aliases are bounded before anything is built from the file.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from importlib import import_module
from itertools import accumulate
from types import ModuleType
from typing import Any

from sparewatt.core.errors import BadRequest, InvalidField, StartupError

_BRACKETS_MAX = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentKind:
    """What is read, by its name in errors, and how much of it there may be."""

    noun: str
    chars_max: int
    depth_max: int
    nodes_max: int
    """Values in all, aliases counted as often as they are used."""


def load_document(text: str, kind: DocumentKind) -> Any:
    """The value in the text: JSON if it begins like an object, else YAML. Raises BadRequest."""
    if len(text) > kind.chars_max:
        raise InvalidField(
            f"{kind.noun[:1].upper()}{kind.noun[1:]} files have at most {kind.chars_max:,} characters.", param=kind.noun
        )
    return _load_json(text, kind) if text.lstrip().startswith("{") else _load_yaml(text, kind)


def error_line(text: str, error: BadRequest, *, root: str) -> int | None:
    """The line in which the reader of a file found this error; None if it cannot be told. `root` leads its paths."""
    mark = getattr(error.__cause__, "problem_mark", None)
    if mark is not None:
        return int(mark.line) + 1
    name = re.escape((error.param or "").removeprefix(f"{root}.").partition(".")[0])
    # A field is a word with a colon after it, at the beginning of a line or of an item in braces.
    found = re.search(rf"""(?:^|[{{,])\s*["']?{name}["']?\s*:""", text, re.MULTILINE) if name else None
    return text.count("\n", 0, found.end()) + 1 if found else None


def _load_json(text: str, kind: DocumentKind) -> Any:
    try:
        value = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        return _load_yaml(text, kind)  # YAML's flow style looks alike
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise InvalidField(f"'{name[:60]}' is given twice.", param=name[:60])
        found[name] = value
    return found


def _yaml() -> ModuleType:
    try:
        return import_module("yaml")  # optional: only files in YAML need it
    except ImportError:
        raise StartupError(
            "Reading YAML needs PyYAML. Install it with: pip install 'sparewatt[yaml]', or write the file as JSON."
        ) from None


def _load_yaml(text: str, kind: DocumentKind) -> Any:
    yaml = _yaml()
    if _brackets_deep(text) > _BRACKETS_MAX:
        raise BadRequest(f"The {kind.noun} is nested too deeply.")
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        problem = getattr(error, "problem", None) or str(error)[:200]
        raise BadRequest(f"The {kind.noun} is not valid YAML: {problem}.") from error
    except RecursionError:
        raise BadRequest(f"The {kind.noun} is nested too deeply.") from None
    return _Reader(yaml, kind).value(root, depth=0)


def _brackets_deep(text: str) -> int:
    """The deepest nesting of brackets. PyYAML would take seconds to refuse a deep one."""
    steps = ({"[": 1, "{": 1, "]": -1, "}": -1}.get(char, 0) for char in text)
    return max(accumulate(steps), default=0)


class _Reader:
    """Walks YAML's tree. It counts nodes, since aliases can make a large tree of a small file."""

    def __init__(self, yaml: ModuleType, kind: DocumentKind) -> None:
        self._yaml, self._kind, self._seen = yaml, kind, 0

    def value(self, node: Any, *, depth: int) -> Any:
        self._seen += 1
        if depth > self._kind.depth_max or self._seen > self._kind.nodes_max:
            raise BadRequest(f"The {self._kind.noun} is nested too deeply or too large.")
        match node:
            case self._yaml.MappingNode():
                pairs = [(self._key(key), self.value(found, depth=depth + 1)) for key, found in node.value]
                return _once(pairs)
            case self._yaml.SequenceNode():
                return [self.value(found, depth=depth + 1) for found in node.value]
            case self._yaml.ScalarNode():
                return node.value if node.style else _scalar(node.value)
            case _:
                return None

    def _key(self, node: Any) -> str:
        if not isinstance(node, self._yaml.ScalarNode):
            raise BadRequest(f"The names of {self._kind.noun} fields must be words.")
        return str(node.value)


def _scalar(word: str) -> Any:
    """An unquoted word: a number, true, false, null, or itself."""
    named = {"true": True, "false": False, "null": None, "~": None, "": None}
    if word in named:
        return named[word]
    try:
        number = float(word)
    except ValueError:
        return word
    if not math.isfinite(number) or "_" in word:
        return word
    return int(word) if word.lstrip("+-").isdigit() else number
