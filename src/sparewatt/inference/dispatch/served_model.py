"""A model on the node that serves it: what its server calls it, and what the reply says about it. Pure."""

from __future__ import annotations

from typing import NamedTuple

from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.policy.model_names.parser import without_directories
from sparewatt.protocol.openai.parameters import header_value


class ServedRequest(NamedTuple):
    """What a node's server gets: its own id of the model, and a body that names it."""

    model: str
    body: bytes


def served_name(model: str, row: NodeRow | None) -> str:
    """The id that the node's server uses for a model of the network."""
    report = row.models.get(model) if row is not None else None
    return model if report is None or report.served_as is None else report.served_as


def model_headers(model: str, row: NodeRow | None) -> dict[str, str]:
    """Which model answered, under its network name; its quantization and its id on the node's server, as reported."""
    headers, report = {"x-sparewatt-model": header_value(model)}, row.models.get(model) if row is not None else None
    if report is not None and report.quantization is not None:
        headers["x-sparewatt-quantization"] = header_value(report.quantization)
    if report is not None and report.served_as is not None:
        headers["x-sparewatt-served-as"] = header_value(without_directories(report.served_as))
    return headers
