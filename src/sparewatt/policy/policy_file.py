"""Reads a policy file, in YAML or in JSON, and tells in which line an error is.

Unquoted words stay words: `NO` is Norway, not false. A field that is given twice is an error. The caller opens the
file.
"""

from __future__ import annotations

import json
import math
import re
from importlib import import_module
from itertools import accumulate
from types import ModuleType
from typing import Any, NamedTuple

from sparewatt.core.errors import BadRequest, InvalidField, StartupError
from sparewatt.core.limits import KIB
from sparewatt.policy.model import Policy
from sparewatt.policy.parser import read_object

POLICY_FILE_CHARS_MAX = 16 * KIB
"""A policy file with all fields and 256 names of nodes; YAML of this size is read in under half a second."""

_DEPTH_MAX = 4
_NODES_MAX = 4096
_BRACKETS_MAX = 32
_ROOT = "policy"


class PolicyFile(NamedTuple):
    fields: dict[str, Any]
    """As they are written, without the key `policy` around them."""
    policy: Policy
    ignored: tuple[str, ...]
    """Fields that are accepted without effect."""


def read_policy_file(text: str) -> PolicyFile:
    """The policy in a file: a mapping of fields, or one under the key `policy`. Raises BadRequest."""
    if len(text) > POLICY_FILE_CHARS_MAX:
        raise InvalidField(f"A policy file has at most {POLICY_FILE_CHARS_MAX} characters.", param=_ROOT)
    value = _load_json(text) if text.lstrip().startswith("{") else _load_yaml(text)
    if isinstance(value, dict) and list(value) == [_ROOT]:
        value = value[_ROOT]
    return PolicyFile(value or {}, *read_object(value, at=_ROOT))


def error_line(text: str, error: BadRequest) -> int | None:
    """The line of a policy file in which `read_policy_file` found this error; None if it cannot be told."""
    mark = getattr(error.__cause__, "problem_mark", None)
    if mark is not None:
        return int(mark.line) + 1
    name = re.escape((error.param or "").removeprefix(f"{_ROOT}.").partition(".")[0])
    # A field is a word with a colon after it, at the beginning of a line or of an item in braces.
    found = re.search(rf"""(?:^|[{{,])\s*["']?{name}["']?\s*:""", text, re.MULTILINE) if name else None
    return text.count("\n", 0, found.end()) + 1 if found else None


def _load_json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        return _load_yaml(text)  # YAML's flow style looks alike


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise InvalidField(f"'{name[:60]}' is given twice.", param=name[:60])
        found[name] = value
    return found


def _yaml() -> ModuleType:
    try:
        return import_module("yaml")  # optional: only a policy file in YAML needs it
    except ImportError:
        raise StartupError(
            "Reading YAML needs PyYAML. Install it with: pip install 'sparewatt[yaml]', or write the policy as JSON."
        ) from None


def _load_yaml(text: str) -> Any:
    yaml = _yaml()
    if _brackets_deep(text) > _BRACKETS_MAX:
        raise BadRequest("The policy is nested too deeply.")
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        problem = getattr(error, "problem", None) or str(error)[:200]
        raise BadRequest(f"The policy is not valid YAML: {problem}.") from error
    except RecursionError:
        raise BadRequest("The policy is nested too deeply.") from None
    return _Reader(yaml).value(root, depth=0)


def _brackets_deep(text: str) -> int:
    """The deepest nesting of brackets. PyYAML would take seconds to refuse a deep one."""
    steps = ({"[": 1, "{": 1, "]": -1, "}": -1}.get(char, 0) for char in text)
    return max(accumulate(steps), default=0)


class _Reader:
    """Walks YAML's tree. It counts nodes, since aliases can make a large tree of a small file."""

    def __init__(self, yaml: ModuleType) -> None:
        self._yaml, self._seen = yaml, 0

    def value(self, node: Any, *, depth: int) -> Any:
        self._seen += 1
        if depth > _DEPTH_MAX or self._seen > _NODES_MAX:
            raise BadRequest("The policy is nested too deeply or too large.")
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
            raise BadRequest("The names of a policy's fields must be words.")
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
