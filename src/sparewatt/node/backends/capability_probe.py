"""Probes what a model can do where its server does not report it: one tiny request per capability, when it is loaded.

A capability counts only with evidence in the answer, as many servers ignore fields that they do not know. How a server
can continue another node's answer is probed in `continuation_probe`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import msgspec

from sparewatt.core.log import Logger
from sparewatt.node.backends.backend import Backend, BackendError, BackendModel, BackendTimeout
from sparewatt.node.backends.continuation_probe import NO_CONTINUATION, ContinuationSupport, probe_continuation
from sparewatt.protocol.link.node_report import Capability

_log = Logger("sparewatt.node")
PROBES_MAX = 3
"""Attempts for each model, if its server does not answer."""
PROBE_S = 60.0
TOKENS = 400
"""Enough for a model that reasons before it answers; others stop after a dozen."""
ANSWER_BYTES_MAX = 1 << 20
_SCHEMA = {
    "type": "object",
    "properties": {"yes": {"type": "boolean"}},
    "required": ["yes"],
    "additionalProperties": False,
}
_CHAT = {"messages": [{"role": "user", "content": "Say yes."}], "temperature": 0}
_TOOL = {"type": "function", "function": {"name": "say", "parameters": _SCHEMA}}
_FORMAT = {"type": "json_schema", "json_schema": {"name": "a", "schema": _SCHEMA, "strict": True}}
_PROBES: dict[str, tuple[str, dict[str, Any]]] = {
    "completions": ("/v1/completions", {"prompt": "a", "max_tokens": 1}),
    "embeddings": ("/v1/embeddings", {"input": "a"}),
    "logprobs": ("/v1/chat/completions", _CHAT | {"max_tokens": 1, "logprobs": True, "top_logprobs": 1}),
    "json_schema": ("/v1/chat/completions", _CHAT | {"max_tokens": TOKENS, "response_format": _FORMAT}),
    "tools": ("/v1/chat/completions", _CHAT | {"max_tokens": TOKENS, "tools": [_TOOL], "tool_choice": "required"}),
}

CapabilityProbe = Callable[[Backend, BackendModel], Awaitable[tuple[Capability, ...]]]
"""Raises BackendError if the server does not answer."""


@dataclass(slots=True)
class ProbedCapabilities:
    """What was found by probing, by model. Each model is probed once, when it is first seen loaded."""

    backend: Backend
    probe_capabilities: CapabilityProbe | None
    _features: dict[str, tuple[Capability, ...]] = field(init=False, default_factory=dict)
    _continuations: dict[str, ContinuationSupport] = field(init=False, default_factory=dict)
    _attempts: Counter[tuple[str, str]] = field(init=False, default_factory=Counter)

    def continuation_of(self, model_id: str) -> ContinuationSupport:
        """How its server can continue an answer that another node began."""
        return self._continuations.get(model_id, NO_CONTINUATION)

    def of(self, model: BackendModel) -> tuple[Capability, ...]:
        return (*self._features.get(model.id, ()), *self.continuation_of(model.id).capabilities)

    def forget(self) -> None:
        """The server is gone: another one may start in its place."""
        self._features.clear()
        self._continuations.clear()
        self._attempts.clear()

    async def probe(self, model: BackendModel) -> bool:
        """Whether something new is known about it."""
        if model.state != "warm":
            return False
        known = len(self._features) + len(self._continuations)
        if model.capabilities is None or "chat" in model.capabilities:
            await self._probe_continuation(model)
        await self._probe_features(model)
        return len(self._features) + len(self._continuations) > known

    async def _probe_features(self, model: BackendModel) -> None:
        probe = self.probe_capabilities
        if probe is None or model.id in self._features or not self._may_try("features", model):
            return
        try:
            self._features[model.id] = await probe(self.backend, model)
        except BackendError as error:
            _log.info("probe_failed", model=model.id, why=str(error))

    async def _probe_continuation(self, model: BackendModel) -> None:
        if model.id in self._continuations or not self._may_try("continuation", model):
            return
        try:
            self._continuations[model.id] = await probe_continuation(self.backend, model.id)
        except BackendError as error:
            _log.info("continuation_probe_failed", model=model.id, why=str(error))
            return
        _log.info("continuation_probed", model=model.id, ways=",".join(self._continuations[model.id].capabilities))

    def _may_try(self, what: str, model: BackendModel) -> bool:
        self._attempts[what, model.id] += 1
        return self._attempts[what, model.id] <= PROBES_MAX


async def probe_undeclared_capabilities(backend: Backend, model: BackendModel) -> tuple[Capability, ...]:
    """What the model can do besides what its server reports. A `CapabilityProbe`."""
    if model.capabilities_complete:
        return ()
    declared = model.capabilities or ()
    return await probe_capabilities(
        backend, model.id, [each for each in backend.capabilities_to_probe if each not in declared]
    )


async def probe_capabilities(backend: Backend, model: str, wanted: Collection[Capability]) -> tuple[Capability, ...]:
    """Those of `wanted` that this model on this server can do. Raises BackendError if it does not answer at all."""
    return tuple([each for each in wanted if each in _PROBES and await _can(backend, model, each)])


async def _can(backend: Backend, model: str, wanted: Capability) -> bool:
    path, body = _PROBES[wanted]
    try:
        async with asyncio.timeout(PROBE_S), backend.post(path, msgspec.json.encode({"model": model, **body})) as reply:
            if reply.status != 200:
                return False
            answer = bytearray()
            async for chunk in reply.chunks:
                answer += chunk
                if len(answer) > ANSWER_BYTES_MAX:
                    return False
        return has_evidence(wanted, msgspec.json.decode(bytes(answer)))
    except TimeoutError:
        raise BackendTimeout(f"the model server took over {PROBE_S:.0f} s for a tiny job") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        _log.info("probe_failed", what=wanted, model=model, why=str(error)[:200])
        return False


def has_evidence(wanted: Capability, answer: Any) -> bool:
    """Whether the answer has what the probe requested."""
    try:
        return bool(_EVIDENCE[wanted](answer))
    except (KeyError, IndexError, TypeError, msgspec.DecodeError):
        return False


def _follows_schema(answer: Any) -> bool:
    content = msgspec.json.decode(answer["choices"][0]["message"]["content"])
    return isinstance(content["yes"], bool) and set(content) == {"yes"}


_EVIDENCE: dict[str, Callable[[Any], bool]] = {
    "completions": lambda answer: isinstance(answer["choices"][0]["text"], str),
    "embeddings": lambda answer: bool(answer["data"][0]["embedding"]),
    "logprobs": lambda answer: isinstance(answer["choices"][0]["logprobs"]["content"][0]["logprob"], float | int),
    "json_schema": _follows_schema,
    "tools": lambda answer: answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "say",
}
