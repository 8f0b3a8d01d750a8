"""Parses a policy from any carrier: a JSON object, one line of text, a query string, a model's suffix.

All carriers use the same vocabulary and give the same type. An unknown word is an error: a typo must not drop a filter.
A field without effect is refused by name, with two exceptions: OpenRouter's in a request, since the reply can name them
as ignored, and those of a policy that an older version has stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from sparewatt.core.errors import InvalidField
from sparewatt.policy import regions
from sparewatt.policy.composition import contradictions, intersect, normalized
from sparewatt.policy.field_types.base import PolicyField, bounded
from sparewatt.policy.fields import RETIRED, field_named, without_effect
from sparewatt.policy.grammar import POLICY_CONDITIONS_MAX, Condition, split_line, split_pair
from sparewatt.policy.model import ANY, Policy, Sort
from sparewatt.policy.openrouter import TRANSLATIONS
from sparewatt.policy.quantization import UNKNOWN, quantization_of

HEADER = "X-Sparewatt-Route"
BODY_FIELD = "provider"
LINE = "q"
"""The parameter of a query string that holds a whole line."""

SUFFIX_SORTS: dict[str, Sort] = {"floor": "price", "nitro": "throughput"}
_SUFFIXES_MAX = 3


class ParsedPolicy(NamedTuple):
    """A policy, and the names of fields that were accepted without effect."""

    policy: Policy
    ignored: tuple[str, ...] = ()


class RequestPolicy(NamedTuple):
    """A model's id without its suffixes, and the policy of a request from all its carriers."""

    model: str
    policy: Policy
    ignored: tuple[str, ...] = ()


class _PolicyBuilder:
    """Collects fields. Several conditions on one field must all hold."""

    def __init__(self, *, is_stored: bool = False) -> None:
        """`is_stored`: skip retired fields, which older versions accepted."""
        self._values: dict[str, Any] = {}
        self._skipped = RETIRED if is_stored else {}

    def add_line(self, text: str, *, at: str) -> None:
        for condition in split_line(text, at=at):
            self.add_condition(condition)

    def add_condition(self, condition: Condition) -> None:
        at = condition.field
        name, _, part = at.partition(".")
        if name in self._skipped:
            return
        field, items = field_named(name, at=at), bounded(condition.items, at=at)
        if part:
            self._put(name, field.read_part(part, condition.operator, items, at=at), field, at=at)
        else:
            self._put(name, field.read(condition.operator, items, at=at), field, at=at)

    def add_json(self, name: str, value: object, *, at: str) -> tuple[str, ...]:
        """One field of an object, ours or OpenRouter's. The names of what has no effect."""
        if name in self._skipped:
            return ()
        fields, ignored = TRANSLATIONS[name](value, at) if name in TRANSLATIONS else ({name: value}, ())
        for ours, each in fields.items():
            field = field_named(ours, at=at, also=TRANSLATIONS)
            if each != [] or not field.may_be_empty:
                self._put(ours, field.from_json(each, at=at), field, at=at)
        return ignored

    def _put(self, name: str, value: object, field: PolicyField[Any], *, at: str) -> None:
        if name in self._values:
            value = field.combine(self._values[name], value, at=at)
        if not field.is_possible(value):
            raise _impossible(name, at=at)
        self._values[name] = value

    def build(self) -> Policy:
        return normalized(Policy(**self._values))


def _impossible(name: str, *, at: str) -> InvalidField:
    return InvalidField(f"No node can satisfy all conditions on '{name}'.", param=at)


def read_object(value: object, *, at: str = BODY_FIELD, is_stored: bool = False) -> ParsedPolicy:
    """A JSON object, ours or OpenRouter's. `null` is no policy. Raises BadRequest."""
    if value is None:
        return ParsedPolicy(ANY)
    if not isinstance(value, Mapping):
        raise InvalidField(f"'{at}' must be an object.", param=at)
    if len(value) > POLICY_CONDITIONS_MAX:
        raise InvalidField(f"'{at}' has more than {POLICY_CONDITIONS_MAX} fields.", param=at)
    builder, ignored = _PolicyBuilder(is_stored=is_stored), list[str]()
    for name, each in value.items():
        if each is not None:
            ignored += builder.add_json(str(name), each, at=f"{at}.{name}")
    return ParsedPolicy(builder.build(), tuple(ignored))


def read_line(text: str, *, at: str = HEADER, is_stored: bool = False) -> Policy:
    """The form of the header and of the command line. Raises BadRequest."""
    builder = _PolicyBuilder(is_stored=is_stored)
    builder.add_line(text, at=at)
    return builder.build()


def read_standing(value: object, *, at: str = "policy", is_stored: bool = False) -> Policy:
    """The policy of an account or a key: an object, or a line as text. Raises BadRequest.

    `is_stored`: it was stored earlier, so fields without effect are skipped. A new one is refused for them: unlike a
    request it has no reply that could name them.
    """
    if isinstance(value, str):
        return read_line(value, at=at, is_stored=is_stored)
    policy, ignored = read_object(value, at=at, is_stored=is_stored)
    if ignored and not is_stored:
        raise without_effect(ignored[0], at=f"{at}.{ignored[0]}")
    return policy


def read_query(pairs: Iterable[tuple[str, str]]) -> Policy:
    """A decoded query string: `region=EU&uptime=>=0.99`, or a whole line as `q`. Raises BadRequest."""
    builder = _PolicyBuilder()
    for count, (name, value) in enumerate(pairs, start=1):
        if count > POLICY_CONDITIONS_MAX:
            raise InvalidField(f"The query has more than {POLICY_CONDITIONS_MAX} parameters.")
        if name == LINE:
            builder.add_line(value, at=LINE)
        else:
            for condition in split_pair(name, value):
                builder.add_condition(condition)
    return builder.build()


def split_model(model: str, *, is_model: Callable[[str], bool] = lambda _: False) -> tuple[str, Policy]:
    """`qwen3-8b:q8_0:floor@eu` is the model `qwen3-8b`, at 8 bits, cheapest first, in the EU.

    An unknown suffix stays in the id.

    Ids with colons are common: a name that is served as it is (`is_model`) keeps its suffixes.
    """
    policy = ANY
    for _ in range(_SUFFIXES_MAX):
        at = max(model.rfind(":"), model.rfind("@"))
        by_suffix = _suffix_policy(model[at], model[at + 1 :]) if at > 0 else None
        if by_suffix is None or is_model(model):
            break
        model, policy = model[:at], intersect(by_suffix, policy)
    return model, policy


def _suffix_policy(sign: str, suffix: str) -> Policy | None:
    if sign == ":":
        if suffix in SUFFIX_SORTS:
            return Policy(sort=SUFFIX_SORTS[suffix])
        quantization = quantization_of(suffix)
        return Policy(quantizations=frozenset({quantization})) if quantization != UNKNOWN else None
    code = regions.code_of(suffix)
    return Policy(region=regions.COVERS[code]) if code else None


def read_request(model: str, *, header: str | None = None, provider: object = None) -> RequestPolicy:
    """The policy of one request. Its carriers narrow one another; of two preferences the body's holds."""
    name, by_suffix = split_model(model)
    if not header and provider is None:
        return RequestPolicy(name, by_suffix)
    by_header = read_line(header) if header else ANY
    by_body = read_object(provider)
    policy = normalized(intersect(by_suffix, by_header, by_body.policy))
    for field in contradictions(policy):
        raise _impossible(field, at=field)
    return RequestPolicy(name, policy, by_body.ignored)
