"""A model on the node that serves it: what its server calls it, and what the reply says about it. Pure."""

from __future__ import annotations

from typing import NamedTuple

from sparewatt.inference.dispatch.model import MatchRecord
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.policy.model_names.parser import without_directories
from sparewatt.protocol.link.frames import JobPath
from sparewatt.protocol.openai.chat import as_stream
from sparewatt.protocol.openai.parameters import header_value
from sparewatt.protocol.openai.prompts import count_prompts
from sparewatt.protocol.openai.stream_accumulator import can_be_streamed


class ServedRequest(NamedTuple):
    """What a node's server gets: its own id of the model, and a body that names it."""

    model: str
    body: bytes
    prompts: int = 0
    """How many prompts it has, if it asks for a stream in place of the answer in one piece that the client wants."""


def streamed_request(request: ServedRequest, path: JobPath) -> ServedRequest:
    """The request for a stream, of which a first token is seen; as it is where an answer comes only whole."""
    if not can_be_streamed(path, request.body):
        return request
    return ServedRequest(request.model, as_stream(request.body), count_prompts(path, request.body))


def served_name(model: str, row: NodeRow | None) -> str:
    """The id that the node's server uses for a model of the network."""
    report = row.models.get(model) if row is not None else None
    return model if report is None or report.served_as is None else report.served_as


def reply_headers(record: MatchRecord, table: NodeTable) -> dict[str, str]:
    """What a reply says about its match, and about the node of the last attempt."""
    headers = {"x-sparewatt-match-id": record.id, "x-sparewatt-attempts": str(len(record.attempts))}
    if record.attempts:
        node_id = record.attempts[-1].node_id
        row = table.get(node_id)
        headers |= {"x-sparewatt-node": node_id, "x-sparewatt-region": row.specs.region if row else "unknown"}
        headers |= model_headers(record.decision.job.model, row)
    return headers


def model_headers(model: str, row: NodeRow | None) -> dict[str, str]:
    """Which model answered, under its network name; its quantization and its id on the node's server, as reported."""
    headers, report = {"x-sparewatt-model": header_value(model)}, row.models.get(model) if row is not None else None
    if report is not None and report.quantization is not None:
        headers["x-sparewatt-quantization"] = header_value(report.quantization)
    if report is not None and report.served_as is not None:
        headers["x-sparewatt-served-as"] = header_value(without_directories(report.served_as))
    return headers
