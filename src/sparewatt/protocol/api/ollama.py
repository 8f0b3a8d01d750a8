"""Ollama's endpoints, in its shapes. What only a server on one machine knows is empty here."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from sparewatt.protocol.link.node_report import ModelName


class OllamaVersion(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    """Of the protocol that is translated, for clients that ask for a newer one than an old server has."""


class OllamaModelDetails(msgspec.Struct, frozen=True, kw_only=True):
    parent_model: str = ""
    format: str = ""
    family: str = ""
    families: list[str] = []
    parameter_size: str = ""
    quantization_level: str = ""
    """As nodes report it; of several, the first by name."""


class OllamaModel(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    model: str
    modified_at: str
    """When the gateway started: models come and go with nodes."""
    size: int
    """Of the largest weights that a node reports."""
    digest: str
    """Of the weights, where all nodes that report one agree; else empty."""
    details: OllamaModelDetails


class OllamaModelList(msgspec.Struct, frozen=True, kw_only=True):
    models: list[OllamaModel]


class OllamaRunningModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that some node has loaded."""

    name: str
    model: str
    size: int
    digest: str
    details: OllamaModelDetails
    context_length: int
    """The longest of those nodes; 0 if none reports it."""


class OllamaRunningModelList(msgspec.Struct, frozen=True, kw_only=True):
    models: list[OllamaRunningModel]


class OllamaShowRequest(msgspec.Struct, frozen=True, kw_only=True):
    model: ModelName | None = None
    name: ModelName | None = None
    """The older name of `model`."""


class OllamaModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    modelfile: str = ""
    parameters: str = ""
    template: str = ""
    modified_at: str
    details: OllamaModelDetails
    model_info: dict[str, Any]
    """`general.architecture` and, where a node reports it, the context length."""
    capabilities: list[str]
    """`completion`, `tools`, `vision`, `embedding`."""


class OllamaChatAnswer(msgspec.Struct, frozen=True, kw_only=True):
    role: Literal["assistant"] = "assistant"
    content: str
    thinking: str | UnsetType = UNSET
    tool_calls: list[dict[str, Any]] | UnsetType = UNSET


class OllamaCompletion(msgspec.Struct, frozen=True, kw_only=True):
    """What ends a chat or a generation: its counts, and durations in nanoseconds as measured at the gateway."""

    model: str
    created_at: str
    done: bool
    done_reason: Literal["stop", "length", "load", "unload"] | UnsetType = UNSET
    total_duration: int | UnsetType = UNSET
    load_duration: int | UnsetType = UNSET
    prompt_eval_count: int | UnsetType = UNSET
    prompt_eval_duration: int | UnsetType = UNSET
    eval_count: int | UnsetType = UNSET
    eval_duration: int | UnsetType = UNSET


class OllamaChatReply(OllamaCompletion, frozen=True, kw_only=True):
    message: OllamaChatAnswer


class OllamaGenerateReply(OllamaCompletion, frozen=True, kw_only=True):
    response: str
    thinking: str | UnsetType = UNSET


class OllamaEmbeddings(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    embeddings: list[list[float]]
    total_duration: int
    load_duration: int
    prompt_eval_count: int


class OllamaEmbedding(msgspec.Struct, frozen=True, kw_only=True):
    embedding: list[float]
