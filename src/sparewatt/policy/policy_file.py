"""Reads a policy file in YAML, or in JSON, which needs nothing installed.

Words stay words: `NO` is Norway, not false. A key that stands twice is an error. The caller reads the file.
"""

from __future__ import annotations

import json
import math
from importlib import import_module
from itertools import accumulate
from types import ModuleType
from typing import Any

from sparewatt.core.errors import BadRequest, InvalidField, StartupError
from sparewatt.core.limits import POLICY_FILE_CHARS_MAX
from sparewatt.policy.parser import ParsedPolicy, read_object

_DEPTH_MAX = 4
_NODES_MAX = 4096
_BRACKETS_MAX = 32
_ROOT = "policy"


def read_policy_file(text: str) -> ParsedPolicy:
    """The policy in a file: a mapping of fields, or one under the key `policy`."""
    if len(text) > POLICY_FILE_CHARS_MAX:
        raise InvalidField(f"A policy file has at most {POLICY_FILE_CHARS_MAX} characters.", param=_ROOT)
    value = _load_json(text) if text.lstrip().startswith("{") else _load_yaml(text)
    if isinstance(value, dict) and list(value) == [_ROOT]:
        value = value[_ROOT]
    return read_object(value, at=_ROOT)


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
        return import_module("yaml")  # optional: a network and its nodes run without it
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
        raise BadRequest(f"The policy is not valid YAML: {str(error)[:200]}") from None
    except RecursionError:
        raise BadRequest("The policy is nested too deeply.") from None
    return _Reader(yaml).value(root, depth=0)


def _brackets_deep(text: str) -> int:
    """How deep brackets nest at most. PyYAML takes seconds to find out by itself."""
    steps = ({"[": 1, "{": 1, "]": -1, "}": -1}.get(char, 0) for char in text)
    return max(accumulate(steps), default=0)


class _Reader:
    """Walks YAML's tree. Counts, since an alias can make a small file a large tree."""

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
