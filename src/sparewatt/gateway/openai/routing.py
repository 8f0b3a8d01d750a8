"""What a request, its key, its account and the network say about who may serve it, as one policy."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import msgspec

from sparewatt.accounts.principal import Principal
from sparewatt.core.errors import BadRequest, InvalidField, StartupError
from sparewatt.core.limits import POLICIES_COMPILED_MAX
from sparewatt.inference.matcher.model import Preference
from sparewatt.policy.carriers import Asked, read_line, read_object, read_request
from sparewatt.policy.compose import Level, narrow
from sparewatt.policy.model import ANY, Policy

IGNORED_HEADER = "x-sparewatt-ignored-params"
UNHEEDED = ("near", "preferred_min_throughput", "preferred_max_ttft_ms", "require_parameters", "explain")
"""Wishes that are understood, and that nothing heeds yet; a reply names those that were made."""


class Routing(NamedTuple):
    model: str
    policy: Policy
    ignored: tuple[str, ...] = ()

    @property
    def preference(self) -> Preference:
        sort = self.policy.sort
        return Preference(None if sort == "score" else sort, preferred_weights(self.policy))

    def headers(self) -> dict[str, str]:
        """Says what was understood but could not be heeded."""
        unheeded = [f"provider.{name}" for name in UNHEEDED if getattr(self.policy, name) not in (None, False)]
        names = [*self.ignored, *unheeded]
        return {IGNORED_HEADER: ", ".join(names)[:1000]} if names else {}


def preferred_weights(policy: Policy) -> tuple[tuple[str, float], ...]:
    """The vocabulary's words for costs, as the matcher calls them."""
    return tuple((part, weight) for name, weight in policy.weights or () for part in _PARTS[name])


_PARTS: dict[str, tuple[str, ...]] = {
    "price": ("price",),
    "ttft": ("queue", "prefill"),
    "throughput": ("decode",),
    "load": ("others",),
    "warm": ("cold_load",),
    "fit": ("scarcity",),
    "reputation": ("flakiness", "suspect"),
    "distance": ("network",),
}


@lru_cache(maxsize=POLICIES_COMPILED_MAX)
def read_policy(text: str) -> Policy:
    """A standing policy as it was stored: an object, or a line as text. Raises InvalidField or UnknownField."""
    value = msgspec.json.decode(text)
    return read_line(value, at="policy") if isinstance(value, str) else read_object(value, at="policy").policy


def check_policy(text: str) -> None:
    """Before it is stored: a policy that cannot be read must not lie in wait for every request."""
    try:
        read_policy(text)
    except (msgspec.DecodeError, RecursionError):
        raise InvalidField("A policy is a JSON object, or a query as text.", param="policy") from None


def read_network_policy(line: str | None) -> Policy:
    """Raises StartupError."""
    try:
        return read_line(line, at="route") if line else ANY
    except BadRequest as error:
        raise StartupError(f"The setting 'route' of the gateway is wrong: {error.message}") from None


def levels_of(who: Principal, network: Policy) -> list[Level]:
    """Standing policies, the most general first."""
    key = who.key
    texts = [("account", key.account_policy), ("key", key.policy)] if key is not None else []
    found = [Level("network", network)] if network != ANY else []
    return found + [Level(name, read_policy(text)) for name, text in texts if text is not None]


def route(
    model: str, *, header: str | None, provider: object, who: Principal, network: Policy, is_model: bool
) -> Routing:
    """Raises InvalidField, UnknownField or KeyPolicyViolation. `is_model`: the name is served as it stands."""
    asked = read_request(model, header=header, provider=provider)
    if is_model and asked.model != model:  # its colon is its own
        asked = Asked(model, read_request("-", header=header, provider=provider).policy, asked.ignored)
    levels = levels_of(who, network)
    policy = narrow(levels, asked.policy) if levels else asked.policy
    return Routing(asked.model, policy, asked.ignored)
