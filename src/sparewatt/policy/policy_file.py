"""Reads a policy file, in YAML or in JSON, and tells in which line an error is. The caller opens the file."""

from __future__ import annotations

from typing import Any, NamedTuple

from sparewatt.core.errors import BadRequest
from sparewatt.core.limits import KIB
from sparewatt.policy import document_file
from sparewatt.policy.document_file import DocumentKind, load_document
from sparewatt.policy.model import Policy
from sparewatt.policy.parser import read_object

_ROOT = "policy"
POLICY_DOCUMENT = DocumentKind(noun=_ROOT, chars_max=16 * KIB, depth_max=4, nodes_max=4096)
"""A policy file with all fields and 256 names of nodes; YAML of this size is read in under half a second."""


class PolicyFile(NamedTuple):
    fields: dict[str, Any]
    """As they are written, without the key `policy` around them."""
    policy: Policy
    ignored: tuple[str, ...]
    """Fields that are accepted without effect."""


def read_policy_file(text: str) -> PolicyFile:
    """The policy in a file: a mapping of fields, or one under the key `policy`. Raises BadRequest."""
    value = load_document(text, POLICY_DOCUMENT)
    if isinstance(value, dict) and list(value) == [_ROOT]:
        value = value[_ROOT]
    return PolicyFile(value or {}, *read_object(value, at=_ROOT))


def error_line(text: str, error: BadRequest) -> int | None:
    """The line of a policy file in which `read_policy_file` found this error; None if it cannot be told."""
    return document_file.error_line(text, error, root=_ROOT)
