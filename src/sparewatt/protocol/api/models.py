"""`/v1/models`, with OpenAI's fields and ours."""

from __future__ import annotations

from typing import Literal

import msgspec


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
    quantizations: list[str]
    nodes_online: int
    warm: int
    """Nodes that have it loaded."""
    pricing: ModelPricing


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[Model]
