"""`/v1/models`, with OpenAI's fields and ours."""

from __future__ import annotations

from typing import Literal

import msgspec

from sparewatt.protocol.link.node_report import ModelName


class ModelPricing(msgspec.Struct, frozen=True, kw_only=True):
    """The lowest price of all nodes, in dollars per token, as decimal strings."""

    prompt: str
    completion: str


class Model(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["model"] = "model"
    created: int
    """When the gateway started, in Unix seconds: models come and go with nodes."""
    owned_by: str = "sparewatt"
    context_length: int | None
    """The longest of all nodes; None if no node reports it."""
    capabilities: list[str]
    aliases: list[str] = []
    """What else a request may call it: well-known ids, and the operator's aliases."""
    quantizations: list[str]
    """As nodes report them. A request for `id:quantization` is served by nodes with such a one."""
    nodes_online: int
    warm: int
    """Nodes that have it loaded."""
    pricing: ModelPricing


class NewModelAlias(msgspec.Struct, frozen=True, kw_only=True):
    name: ModelName
    """An id of a model server, or a weights digest (`sha256:…`)."""
    target: ModelName
    """The model that it means, by any of its names."""


class ModelAlias(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's word for what an id means."""

    name: str
    target: str
    """The network's name of the model."""
    created_at: float
    """In Unix seconds."""


class ModelAliasList(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[ModelAlias]


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of up to 200 models, those of the most owners first."""

    object: Literal["list"] = "list"
    data: list[Model]
    next: str | None = None
    """`after` of the next page; None on the last one."""
