"""Which capabilities of a node's model a request needs, and which nodes have them. Pure.

A node that reports no capabilities is assumed to have those common to all chat servers. A request with
`require_parameters` takes only nodes that report them. That a node's owner lets it fetch pictures from a host counts as
a capability too, `fetch:HOST`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from sparewatt.core.errors import SparewattError, UnsupportedContent, UnsupportedParameter
from sparewatt.policy.check import NodeFacts
from sparewatt.protocol.link.node_report import Capability, ModelReport, NodeSpecs
from sparewatt.protocol.openai.media import refused_host

COMMON: frozenset[Capability] = frozenset({"chat", "completions", "tools", "json_schema", "logprobs"})
"""vLLM, SGLang, llama.cpp, Ollama and LM Studio all have these. Vectors and pictures depend on the model."""

FILTER = "capability."
"""How the names of these filters begin in a funnel; the capability follows."""

FETCH = "fetch"
GENERIC: Mapping[str, str] = {"tools": "tools_generic"}
"""What a node that reports the second makes up for: a request with `require_parameters` does not take it for the
first."""
GENERIC_NAMES = frozenset(GENERIC.values())

_PARAM: Mapping[str, str] = {
    "tools": "tools",
    "json_schema": "response_format",
    "logprobs": "logprobs",
    "vision": "messages",
}
"""The field of a request that a capability is needed for; what is not here is needed for the endpoint."""


class RequiredCapabilities(NamedTuple):
    can: frozenset[str] = frozenset()
    declared: bool = False
    """Whether a node must have reported them itself."""

    def filters(self) -> Iterable[tuple[str, str]]:
        """Each capability with the name of its filter, in a fixed order: what no other model would change comes first.

        All hosts have one filter: clients choose their names.
        """
        names = sorted(self.can, key=lambda name: (not _is_fetch(name), name))
        return ((f"{FILTER}{FETCH if _is_fetch(name) else name}", name) for name in names)


NOTHING_REQUIRED = RequiredCapabilities()


def fetch_capability(host: str) -> str:
    return f"{FETCH}:{host}"


def _is_fetch(name: str) -> bool:
    return name.startswith(f"{FETCH}:")


def reported_by(specs: NodeSpecs, model: ModelReport) -> Collection[str] | None:
    """What a node says that this model of it can do, and from where it fetches; None if it says nothing."""
    if not specs.fetch_hosts:
        return model.capabilities
    return frozenset((*assumed(model.capabilities), *map(fetch_capability, specs.fetch_hosts)))


def is_able(needs: RequiredCapabilities, reported: Collection[str] | None) -> bool:
    """`reported`: what a node says that its model can do; None if it says nothing."""
    return needs.can.issubset(assumed(reported, declared=needs.declared))


def assumed(reported: Collection[str] | None, *, declared: bool = False) -> Collection[str]:
    """What a node is taken to be able to do: what it reports, otherwise what is common."""
    if reported is None:
        return () if declared else COMMON
    if declared and not GENERIC_NAMES.isdisjoint(reported):
        return [name for name in reported if GENERIC.get(name) not in reported]
    return reported


def best_of(reported: Iterable[Collection[str]]) -> list[str]:
    """What any of several nodes can do; what one of them can do by itself is not told as generic."""
    each = [frozenset(names) for names in reported]
    native = {
        generic for name, generic in GENERIC.items() if any(name in names and generic not in names for names in each)
    }
    return sorted(frozenset().union(*each) - native)


class CapabilityCheck:
    """Checks one capability against what a node reports, in the form of a policy's own checks."""

    def __init__(self, *, declared: bool) -> None:
        self._declared = declared

    def admits(self, needed: str, reported: Collection[str] | None) -> bool:
        return needed in assumed(reported, declared=self._declared)


def capabilities_of(facts: NodeFacts) -> frozenset[str] | None:
    return facts.capabilities


def unable_error(barred: Mapping[str, int], model: str) -> SparewattError | None:
    """The error if missing capabilities alone ruled out every node: then retrying does not help. Otherwise None."""
    names = [name.removeprefix(FILTER) for name, count in barred.items() if count and name.startswith(FILTER)]
    if not names or len(names) < sum(count > 0 for count in barred.values()):
        return None
    return refused_host(model) if FETCH in names else _error_of(names[0], model)


def _error_of(capability: str, model: str) -> SparewattError:
    param = _PARAM.get(capability)
    if capability == "vision":
        return UnsupportedContent(f"No node that serves {model!r} can look at pictures.", param=param)
    if param is None:
        text = f"No node serves {model!r} for {capability}. GET /v1/models says what each model can do."
        return UnsupportedParameter(text, param="model")
    return UnsupportedParameter(f"No node that serves {model!r} takes '{param}'.", param=param)
