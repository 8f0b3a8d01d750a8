"""What a request, its key, its account and the network say about who may serve it, as one policy."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import msgspec

from sparewatt.accounts.principal import Principal
from sparewatt.core.errors import BadRequest, InvalidField, StartupError
from sparewatt.core.limits import POLICIES_COMPILED_MAX, POLICY_BYTES_MAX, REQUEST_POLICIES_KEPT
from sparewatt.inference.matcher.model import Preference
from sparewatt.policy.composition import PolicyLevel, narrow
from sparewatt.policy.model import ANY, Policy
from sparewatt.policy.parser import BODY_FIELD, read_line, read_request, read_standing, split_model
from sparewatt.protocol.openai.parameters import unsupported_by

IGNORED_HEADER = "x-sparewatt-ignored-params"
UNHEEDED = ("near",)
"""Preferences of the vocabulary that the matcher does not use yet; a reply names those that the request has."""


class Routing(NamedTuple):
    model: str
    policy: Policy
    ignored: tuple[str, ...] = ()
    unsure: tuple[str, ...] = ()
    """Fields of the body that the server of some nodes does not heed."""

    @property
    def preference(self) -> Preference:
        sort = self.policy.sort
        return Preference(None if sort == "score" else sort, preferred_weights(self.policy))

    def headers(self, *, server: str = "") -> dict[str, str]:
        """Says what was understood but could not be heeded, by the kind of server that has it."""
        if self.policy is ANY and not self.ignored and not self.unsure:
            return {}
        unheeded = [f"provider.{name}" for name in UNHEEDED if getattr(self.policy, name) not in (None, False)]
        names = [*self.ignored, *unsupported_by(self.unsure, server), *unheeded]
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
    return read_standing(_json(text, param="policy"), is_stored=True)


def _json(text: str | bytes, *, param: str) -> object:
    try:
        value: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        raise InvalidField("A policy is a JSON object, or a query as text.", param=param) from None
    return value


def check_policy(text: str) -> None:
    """Before a policy is stored: one that cannot be read would fail every request. Raises BadRequest."""
    read_standing(_json(text, param="policy"))


def read_network_policy(line: str | None) -> Policy:
    """Raises StartupError."""
    try:
        return read_line(line, at="route") if line else ANY
    except BadRequest as error:
        raise StartupError(f"The setting 'route' of the gateway is wrong: {error.message}") from None


class RoutingTexts(NamedTuple):
    """All texts that decide who may serve a request, by whom they are. Texts, since they key a cache."""

    suffixes: str = ""
    header: str | None = None
    provider: bytes = b""
    account: str | None = None
    key: str | None = None
    network: Policy | None = None
    """Read when the gateway started."""


_NOTHING = RoutingTexts()


def route(
    model: str,
    *,
    header: str | None,
    provider: bytes,
    who: Principal,
    network: Policy,
    is_model: Callable[[str], bool],
) -> Routing:
    """Raises InvalidField, UnknownField or KeyPolicyViolation. `is_model`: whether a name is served as it stands."""
    name, _ = split_model(model, is_model=is_model)
    account, key = standing_texts(who)
    said = RoutingTexts(model[len(name) :], header or None, provider, account, key, None if network is ANY else network)
    if said == _NOTHING:
        return Routing(name, ANY)
    read = _read if len(provider) <= POLICY_BYTES_MAX else _read.__wrapped__
    return Routing(name, *read(said))


def standing_texts(who: Principal) -> tuple[str | None, str | None]:
    """The policies of account and key, as they were stored. A browser's session has no key."""
    if who.key is not None:
        return who.key.account_policy, who.key.policy
    return who.session.account_policy if who.session is not None else None, None


@lru_cache(maxsize=REQUEST_POLICIES_KEPT)
def _read(said: RoutingTexts) -> tuple[Policy, tuple[str, ...]]:
    """The policy that holds, and what has no effect. Clients say the same again and again."""
    provider = _json(said.provider, param=BODY_FIELD) if said.provider else None
    _, asked, ignored = read_request(f"-{said.suffixes}", header=said.header, provider=provider)
    levels = levels_of(said)
    names = tuple(f"{BODY_FIELD}.{name}" for name in ignored)
    return narrow(levels, asked) if levels else asked, names


def levels_of(said: RoutingTexts) -> list[PolicyLevel]:
    """Standing policies, the most general first. Raises InvalidField if one cannot be read any more."""
    found = [PolicyLevel("network", said.network)] if said.network is not None else []
    texts = (("account", said.account), ("key", said.key))
    return found + [PolicyLevel(name, _standing(name, text)) for name, text in texts if text is not None]


def _standing(level: str, text: str) -> Policy:
    """It was checked when it was stored. Should the vocabulary have changed since, it must not be left out silently."""
    try:
        return read_policy(text)
    except BadRequest as error:
        raise InvalidField(
            f"The {level} policy cannot be read any more: {error.message} Set it anew, or to null for none.",
            param=f"{level}.policy",
        ) from None
