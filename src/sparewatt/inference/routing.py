"""Routing: the policies of a request, its key, its account and the network, narrowed to one."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import msgspec

from sparewatt.accounts.principal import Principal
from sparewatt.core.errors import BadRequest, InvalidField, StartupError
from sparewatt.core.limits import POLICIES_COMPILED_MAX, POLICY_BYTES_MAX
from sparewatt.inference.fleet.model_catalog import ModelCatalog
from sparewatt.inference.matcher.formula import NO_PREFERENCE, Preference
from sparewatt.policy.composition import PolicyLevel, intersect, narrow
from sparewatt.policy.model import ANY, Policy, Retention, Sort
from sparewatt.policy.parser import BODY_FIELD, read_line, read_request, read_standing, split_model
from sparewatt.policy.quantization import UNKNOWN, quantization_of
from sparewatt.protocol.openai.parameters import unsupported_by

REQUEST_POLICIES_KEPT = 1_024
"""What requests and their keys said, kept as it was understood: at the very most 24 kB each."""

IGNORED_HEADER = "x-sparewatt-ignored-params"


class Routing(NamedTuple):
    model: str
    """The network's name of it."""
    policy: Policy
    ignored: tuple[str, ...] = ()
    unsure: tuple[str, ...] = ()
    """Fields of the body that some model servers accept and do not act on."""
    asked: str = ""
    """What the client calls the model, without suffixes."""
    quantization: str | None = None
    """What the id asks for, if it does."""

    @property
    def preference(self) -> Preference:
        policy = self.policy
        return NO_PREFERENCE if policy is ANY else _preference(policy.sort, policy.weights or ())

    def headers(self, *, server: str = "") -> dict[str, str]:
        """Names the fields that were understood and have no effect with the kind of server that has the job."""
        if not self.ignored and not self.unsure:
            return {}
        names = [*self.ignored, *unsupported_by(self.unsure, server)]
        return {IGNORED_HEADER: ", ".join(names)[:1000]} if names else {}


@lru_cache(maxsize=REQUEST_POLICIES_KEPT)
def _preference(sort: Sort | None, weights: tuple[tuple[str, float], ...]) -> Preference:
    """By the matcher's names of costs."""
    parts = tuple((part, weight) for name, weight in weights for part in _PARTS[name])
    named = None if sort == "score" else sort
    return Preference(named, parts) if named or parts else NO_PREFERENCE


_PARTS: dict[str, tuple[str, ...]] = {
    "price": ("price",),
    "ttft": ("queue", "prefill"),
    "throughput": ("decode",),
    "load": ("others",),
    "warm": ("cold_load",),
    "fit": ("memory",),
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
    """The policies of a request by their level, as text: they are the key of a cache."""

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
    principal: Principal,
    network: Policy,
    catalog: ModelCatalog,
    is_model: Callable[[str], bool],
) -> Routing:
    """Raises InvalidField, UnknownField or KeyPolicyViolation. `is_model`: whether some node serves a name."""
    asked, _ = split_model(model, is_model=is_model)
    name, quantization = catalog.resolve(asked, is_served=is_model)
    suffixes = model[len(asked) :] if quantization is None else f":{quantization}{model[len(asked) :]}"
    account, key = standing_texts(principal)
    texts = RoutingTexts(suffixes, header or None, provider, account, key, None if network is ANY else network)
    if texts == _NOTHING:
        return Routing(name, ANY, asked=asked)
    read = _read if len(provider) <= POLICY_BYTES_MAX else _read.__wrapped__
    return Routing(name, *read(texts), asked=asked, quantization=quantization or _quantization_in(suffixes))


def _quantization_in(suffixes: str) -> str | None:
    words = (word for word in suffixes.replace("@", ":").split(":") if quantization_of(word) != UNKNOWN)
    return next(words, None)


def standing_texts(principal: Principal) -> tuple[str | None, str | None]:
    """The policies of account and key, as they were stored. A browser's session has no key."""
    if principal.key is not None:
        return principal.key.account_policy, principal.key.policy
    return principal.session.account_policy if principal.session is not None else None, None


@lru_cache(maxsize=REQUEST_POLICIES_KEPT)
def _read(texts: RoutingTexts) -> tuple[Policy, tuple[str, ...]]:
    """The narrowed policy, and the fields that have no effect. Cached: clients repeat themselves."""
    provider = _json(texts.provider, param=BODY_FIELD) if texts.provider else None
    _, requested, ignored = read_request(f"-{texts.suffixes}", header=texts.header, provider=provider)
    levels = levels_of(texts)
    names = tuple(f"{BODY_FIELD}.{name}" for name in ignored)
    return narrow(levels, requested) if levels else requested, names


def standing_retention(principal: Principal, network: Policy) -> Retention:
    """The longest that network, account and key let anything be kept. Raises InvalidField as `levels_of` does."""
    account, key = standing_texts(principal)
    levels = levels_of(RoutingTexts(account=account, key=key, network=network))
    return intersect(*(level.policy for level in levels)).retention or "day"


def levels_of(texts: RoutingTexts) -> list[PolicyLevel]:
    """Standing policies, the most general first. Raises InvalidField if one cannot be read any more."""
    found = [PolicyLevel("network", texts.network)] if texts.network is not None else []
    stored = (("account", texts.account), ("key", texts.key))
    return found + [PolicyLevel(name, _standing(name, text)) for name, text in stored if text is not None]


def _standing(level: str, text: str) -> Policy:
    """Checked when it was stored; if the vocabulary has changed since, it must not be skipped silently."""
    try:
        return read_policy(text)
    except BadRequest as error:
        raise InvalidField(
            f"The {level} policy cannot be read any more: {error.message} Set it again, or to null for none.",
            param=f"{level}.policy",
        ) from None
