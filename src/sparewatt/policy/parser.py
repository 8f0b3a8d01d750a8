"""Reads a policy from whatever carries it: a JSON object, one line of text, a query string, a model's suffix.

All carriers have the same words and end in the same type. An unknown word is an error: a typo must not drop a filter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from sparewatt.core.errors import InvalidField
from sparewatt.core.limits import POLICY_CONDITIONS_MAX
from sparewatt.policy import regions
from sparewatt.policy.composition import contradictions, intersect, normalized
from sparewatt.policy.field_types.base import PolicyField, bounded
from sparewatt.policy.fields import FIELDS, field_named
from sparewatt.policy.grammar import Condition, split_line, split_pair
from sparewatt.policy.model import ANY, Policy
from sparewatt.policy.openrouter import TRANSLATIONS

HEADER = "X-Sparewatt-Route"
BODY_FIELD = "provider"
LINE = "q"
"""In a query string, the name under which a whole line may stand."""

SUFFIX_SORTS = {"floor": "price", "nitro": "throughput"}
_SUFFIXES_MAX = 2


class ParsedPolicy(NamedTuple):
    """A policy, and the names of what was accepted without effect: the reply says so."""

    policy: Policy
    ignored: tuple[str, ...] = ()


class RequestPolicy(NamedTuple):
    """A model's id without its suffixes, and all that a request says about who may serve it."""

    model: str
    policy: Policy
    ignored: tuple[str, ...] = ()


class _PolicyBuilder:
    """The fields read so far. Conditions on one field add up."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def put(self, name: str, value: object, *, kind: PolicyField[Any], at: str) -> None:
        if name in self._values:
            value = kind.combine(self._values[name], value, at=at)
        if not kind.is_possible(value):
            raise _impossible(name, at=at)
        self._values[name] = value

    def finish(self) -> Policy:
        return normalized(Policy(**self._values))


def _impossible(name: str, *, at: str) -> InvalidField:
    return InvalidField(f"No node can satisfy all conditions on '{name}'.", param=at)


def read_object(value: object, *, at: str = BODY_FIELD) -> ParsedPolicy:
    """A JSON object, ours or OpenRouter's. `null` says nothing. Raises InvalidField or UnknownField."""
    if value is None:
        return ParsedPolicy(ANY)
    if not isinstance(value, Mapping):
        raise InvalidField(f"'{at}' must be an object.", param=at)
    if len(value) > POLICY_CONDITIONS_MAX:
        raise InvalidField(f"'{at}' has more than {POLICY_CONDITIONS_MAX} fields.", param=at)
    draft, ignored = _PolicyBuilder(), list[str]()
    for name, found in value.items():
        if found is not None:
            ignored += _put_json(draft, str(name), found, at=f"{at}.{name}")
    return ParsedPolicy(draft.finish(), tuple(ignored))


def _put_json(draft: _PolicyBuilder, name: str, value: object, *, at: str) -> tuple[str, ...]:
    fields, ignored = {name: value}, tuple[str, ...]()
    if name in TRANSLATIONS:
        translated = TRANSLATIONS[name](value, at)
        fields, ignored = dict(translated.fields), translated.ignored
    for ours, found in fields.items():
        kind = field_named(ours, at=at, also=TRANSLATIONS)
        if found == [] and kind.may_be_empty:
            continue
        draft.put(ours, kind.from_json(found, at=at), kind=kind, at=at)
    return ignored


def read_line(text: str, *, at: str = HEADER) -> Policy:
    """The header's form, which is also the command line's."""
    draft = _PolicyBuilder()
    _put_line(draft, text, at=at)
    return draft.finish()


def _put_line(draft: _PolicyBuilder, text: str, *, at: str) -> None:
    for condition in split_line(text, at=at):
        _put(draft, condition)


def _put(draft: _PolicyBuilder, condition: Condition) -> None:
    name, _, part = condition.field.partition(".")
    kind, at = field_named(name, at=condition.field), condition.field
    items = bounded(condition.items, at=at)
    said = (condition.operator, items)
    draft.put(name, kind.read_part(part, *said, at=at) if part else kind.read(*said, at=at), kind=kind, at=at)


def read_query(pairs: Iterable[tuple[str, str]]) -> Policy:
    """A query string, decoded: `region=EU&uptime=>=0.99`, or a whole line as `q`."""
    draft = _PolicyBuilder()
    for count, (name, value) in enumerate(pairs, start=1):
        if count > POLICY_CONDITIONS_MAX:
            raise InvalidField(f"The query has more than {POLICY_CONDITIONS_MAX} parameters.")
        if name == LINE:
            _put_line(draft, value, at=LINE)
        else:
            for condition in split_pair(name, value):
                _put(draft, condition)
    return draft.finish()


def _unknown(model: str) -> bool:
    del model
    return False


def split_model(model: str, *, is_model: Callable[[str], bool] = _unknown) -> tuple[str, Policy]:
    """`qwen3-8b:floor@eu` is the model `qwen3-8b`, cheapest first, in the EU. What is no suffix of ours stays.

    Ids with colons are common: what `is_model` says is served as it stands loses nothing more.
    """
    policy = ANY
    for _ in range(_SUFFIXES_MAX):
        if is_model(model):
            break
        name, sign, suffix = _last_suffix(model)
        wish = _suffix_policy(sign, suffix)
        if not name or wish is None:
            break
        model, policy = name, intersect(wish, policy)
    return model, policy


def _last_suffix(model: str) -> tuple[str, str, str]:
    at = max(model.rfind(":"), model.rfind("@"))
    return (model[:at], model[at], model[at + 1 :]) if at > 0 else ("", "", "")


def _suffix_policy(sign: str, suffix: str) -> Policy | None:
    if sign == ":" and suffix in SUFFIX_SORTS:
        return replace(ANY, sort=FIELDS["sort"].read("=", (SUFFIX_SORTS[suffix],), at="model"))
    code = regions.code_of(suffix) if sign == "@" else None
    return Policy(region=regions.COVERS[code]) if code else None


def read_request(model: str, *, header: str | None = None, provider: object = None) -> RequestPolicy:
    """All that one request says. Its carriers narrow one another; for a preference the body has the last word."""
    name, by_suffix = split_model(model)
    if not header and provider is None:
        return RequestPolicy(name, by_suffix)
    by_header = read_line(header) if header else ANY
    by_body = read_object(provider)
    policy = normalized(intersect(by_suffix, by_header, by_body.policy))
    for field in contradictions(policy):
        raise _impossible(field, at=field)
    return RequestPolicy(name, policy, by_body.ignored)
