"""How long a response is kept: by what its request says of `store`, and by the policies that apply to it. Pure."""

from __future__ import annotations

from typing import Literal

from sparewatt.core.errors import RetentionForbidden
from sparewatt.policy.model import Retention

Lifetime = Literal["hour", "day"]


def lifetime_of(*, store: bool | None, allowed: Retention, has_key: bool) -> Lifetime | None:
    """None: nothing is kept. Raises RetentionForbidden if the request asks for more than the policies allow.

    `has_key`: a browser's session has no API key to seal anything under.
    """
    if store is None:
        return "hour" if has_key and allowed != "none" else None
    if store:
        require_day(allowed, param="store")
    return "day" if store else None


def require_day(allowed: Retention, *, param: str | None) -> None:
    """Before something is stored. Raises RetentionForbidden."""
    if allowed != "day":
        raise RetentionForbidden(
            f"A policy of the network, the account, the key or the request says retention={allowed}, so nothing can be "
            "stored for a day. Leave out what stores, and send the whole conversation as 'input'.",
            param=param,
        )


def retention_note(allowed: Retention) -> str:
    """For the error of a client that looks for something that is not there."""
    if allowed == "none":
        return "The policy of this network, account or key says retention=none: nothing is kept here."
    unsaid = "for an hour where it did not say 'store', and not at all where it said false."
    if allowed == "hour":
        return f"The policy of this network, account or key says retention=hour: a response is kept {unsaid}"
    return f"A response is kept for 24 h where its request said 'store': true, {unsaid}"
