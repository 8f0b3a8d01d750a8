"""Composes the policies of all levels: network, account, key, request, from the most general to the most specific.

Filters intersect, caps take the tightest, denied names add up, and of two preferences the more specific one holds.
Standing levels compose silently, since an account may be tightened below its keys. A request that allows more than
they do is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

from sparewatt.core.errors import KeyPolicyViolation
from sparewatt.policy.fields import given_fields
from sparewatt.policy.model import ANY, Policy


class PolicyLevel(NamedTuple):
    """A standing policy, and its level: `network`, `account` or `key`."""

    name: str
    policy: Policy


def intersect(*policies: Policy) -> Policy:
    """What all policies allow; the most general comes first. Associative and idempotent, and it only narrows."""
    return reduce(_meet, policies, ANY)


def _meet(general: Policy, specific: Policy) -> Policy:
    if general == ANY:
        return specific
    values = {name: value for name, value, _ in given_fields(general)}
    for name, value, field in given_fields(specific):
        values[name] = field.meet(values[name], value) if name in values else value
    return Policy(**values)


def normalized(policy: Policy) -> Policy:
    """Without fallbacks an `order` is also an `only`, which the more specific levels cannot widen."""
    if policy.allow_fallbacks is not False or policy.order is None:
        return policy
    return intersect(policy, Policy(only=frozenset(policy.order)))


def narrow(levels: Sequence[PolicyLevel], request: Policy) -> Policy:
    """The policy that applies to a request. Raises KeyPolicyViolation if the request allows more than a level."""
    for level in levels:
        _refuse_widening(level, request)
    return normalized(intersect(*(level.policy for level in levels), request))


def _refuse_widening(level: PolicyLevel, request: Policy) -> None:
    for name, value, field in given_fields(request):
        standing = getattr(level.policy, name)
        if standing is not None and field.widens(standing, value):
            allowed, requested = (" ".join(field.conditions(name, each))[:200] for each in (standing, value))
            raise KeyPolicyViolation(name, level=level.name, allowed=allowed, requested=requested)


def contradictions(policy: Policy) -> list[str]:
    """Fields whose levels contradict one another: no node can satisfy them."""
    return [name for name, value, field in given_fields(policy) if not field.is_possible(value)]
