"""Levels of policy into one: network, account, key, request, from the most general to the most specific.

Filters intersect, caps take the tightest, what is ignored adds up, and of two preferences the more specific one holds.
Standing levels compose silently, since an account may be tightened under its keys. A request that asks for more than
they allow is told so.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

from sparewatt.core.errors import KeyPolicyViolation
from sparewatt.policy.fields import given_fields
from sparewatt.policy.model import ANY, Policy


class PolicyLevel(NamedTuple):
    """A standing policy and whose it is: `network`, `account` or `key`."""

    name: str
    policy: Policy


def intersect(*policies: Policy) -> Policy:
    """What all allow, the most general first. Associative and idempotent, and it only ever narrows."""
    return reduce(_meet, policies, ANY)


def _meet(general: Policy, specific: Policy) -> Policy:
    if general == ANY:
        return specific
    values = {name: value for name, value, _ in given_fields(general)}
    for name, value, kind in given_fields(specific):
        values[name] = kind.meet(values[name], value) if name in values else value
    return Policy(**values)


def normalized(policy: Policy) -> Policy:
    """Without fallbacks, an order is all there is: as `only`, it also holds for the levels below."""
    if policy.allow_fallbacks is not False or policy.order is None:
        return policy
    return intersect(policy, Policy(only=frozenset(policy.order)))


def narrow(levels: Sequence[PolicyLevel], request: Policy) -> Policy:
    """The policy that holds for a request. Raises KeyPolicyViolation where it asks for more than a level allows."""
    for level in levels:
        refuse_widening(level, request)
    return normalized(intersect(*(level.policy for level in levels), request))


def refuse_widening(level: PolicyLevel, request: Policy) -> None:
    for name, asked, kind in given_fields(request):
        standing = getattr(level.policy, name)
        if standing is not None and kind.widens(standing, asked):
            allowed, wanted = (" ".join(kind.conditions(name, value))[:200] for value in (standing, asked))
            raise KeyPolicyViolation(name, level=level.name, allowed=allowed, asked=wanted)


def contradictions(policy: Policy) -> list[str]:
    """Fields on which the levels leave nothing: no node can ever satisfy them."""
    return [name for name, value, kind in given_fields(policy) if not kind.is_possible(value)]
