"""What a request needs a node's model to be able to do, and which nodes can. Pure.

A node that does not say what its model can do is taken to do what chat servers commonly do. A request that requires its
parameters to be honoured takes only nodes that have said so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from sparewatt.core.errors import SparewattError, UnsupportedContent, UnsupportedParameter
from sparewatt.policy.check import NodeFacts
from sparewatt.protocol.link.node_report import Capability

COMMON: frozenset[Capability] = frozenset({"chat", "completions", "tools", "json_schema", "logprobs"})
"""vLLM, SGLang, llama.cpp, Ollama and LM Studio all have these. Vectors and pictures depend on the model."""

FILTER = "capability."
"""How the names of these filters begin in a funnel; the capability follows."""

_PARAM: Mapping[str, str] = {
    "tools": "tools",
    "json_schema": "response_format",
    "logprobs": "logprobs",
    "vision": "messages",
}
"""The field of a request that a capability is needed for; what is not here is needed for the endpoint."""


class RequiredCapabilities(NamedTuple):
    can: frozenset[Capability] = frozenset()
    declared: bool = False
    """Whether a node must have said so itself."""

    def filters(self) -> Iterable[tuple[str, Capability]]:
        """Each capability with the name of its filter, in a fixed order."""
        return ((f"{FILTER}{name}", name) for name in sorted(self.can))


NOTHING_REQUIRED = RequiredCapabilities()


def is_able(needs: RequiredCapabilities, says: Collection[str] | None) -> bool:
    """`says`: what a node reports of its model; None if it reports nothing."""
    return needs.can.issubset(believed(says, declared=needs.declared))


def believed(says: Collection[str] | None, *, declared: bool = False) -> Collection[str]:
    """What a node can do, as far as it is taken to."""
    if says is not None:
        return says
    return () if declared else COMMON


class CapabilityCheck:
    """A check among a policy's own: one capability, against what a node says."""

    def __init__(self, *, declared: bool) -> None:
        self._declared = declared

    def admits(self, needed: Capability, says: Collection[str] | None) -> bool:
        return needed in believed(says, declared=self._declared)


def says_of(facts: NodeFacts) -> frozenset[str] | None:
    return facts.capabilities


def unable_error(barred: Mapping[str, int], model: str) -> SparewattError | None:
    """For a model that nobody here serves in the way that was asked for: the request will not do, now or later."""
    names = [name.removeprefix(FILTER) for name, count in barred.items() if count and name.startswith(FILTER)]
    if not names or len(names) < sum(count > 0 for count in barred.values()):
        return None
    return _error_of(names[0], model)


def _error_of(capability: str, model: str) -> SparewattError:
    param = _PARAM.get(capability)
    if capability == "vision":
        return UnsupportedContent(f"No node that serves {model!r} can look at pictures.", param=param)
    if param is None:
        said = f"No node serves {model!r} for {capability}. GET /v1/models says what each model can do."
        return UnsupportedParameter(said, param="model")
    return UnsupportedParameter(f"No node that serves {model!r} takes '{param}'.", param=param)
