"""An order file: ours in YAML or JSON, an Akash SDL or a Spheron ICL. Pure; the caller opens the file.

What another format says is translated into our fields; what cannot be is named, as a note where the order still means
the same without it, and as an error where it would not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparewatt.core.errors import BadRequest, InvalidField
from sparewatt.core.limits import KIB
from sparewatt.leasing.orders.akash_sdl import read_sdl
from sparewatt.leasing.orders.foreign_values import mapping
from sparewatt.leasing.orders.spheron_icl import read_icl
from sparewatt.leasing.orders.translated_order import TranslatedOrder
from sparewatt.policy import document_file
from sparewatt.policy.document_file import DocumentKind, load_document

ORDER_DOCUMENT = DocumentKind(noun="order", chars_max=96 * KIB, depth_max=12, nodes_max=4_096)
"""A content document has 64 KiB; an SDL nests ten deep down to a GPU's model."""
_ROOT = "order"


@dataclass(frozen=True, slots=True)
class OrderFile:
    fields: dict[str, Any]
    """For `read_order`, which has not seen them."""
    notes: tuple[str, ...] = ()
    """What a foreign format says that was left out, or was translated with a difference."""
    format: str = "order"


def read_order_file(text: str) -> OrderFile:
    """Raises BadRequest."""
    value = load_document(text, ORDER_DOCUMENT)
    if not isinstance(value, Mapping):
        raise InvalidField("An order file is a list of named fields, e.g. 'image: nginx:1.27'.", param=_ROOT)
    if list(value) == [_ROOT]:
        value = mapping(value[_ROOT], _ROOT)
    if "services" in value:
        return _foreign(value)
    return OrderFile(dict(value))


def error_line(text: str, error: BadRequest) -> int | None:
    return document_file.error_line(text, error, root=_ROOT)


def _foreign(value: Mapping[str, Any]) -> OrderFile:
    version = str(value.get("version"))
    if version in {"2.0", "2", "2.1"} and _has_icl_services(value):
        raise InvalidField(
            "This looks like a Spheron ICL of version 2.0, whose services have resources: only version 1.0 is read.",
            param="version",
        )
    if version in {"2.0", "2", "2.1"}:
        return _as_file(read_sdl(value), "Akash SDL")
    if version in {"1.0", "1"}:
        return _as_file(read_icl(value), "Spheron ICL")
    raise InvalidField(
        f"'version': {version[:20]!r} is neither that of an Akash SDL (2.0) nor of a Spheron ICL (1.0).",
        param="version",
    )


def _has_icl_services(value: Mapping[str, Any]) -> bool:
    services = value["services"]
    named = services.values() if isinstance(services, Mapping) else ()
    return "profiles" not in value and any(isinstance(each, Mapping) and "resources" in each for each in named)


def _as_file(translated: TranslatedOrder, name: str) -> OrderFile:
    return OrderFile(translated.fields, tuple(translated.notes), name)
