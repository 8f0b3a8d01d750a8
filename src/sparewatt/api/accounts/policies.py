"""Policies between JSON bodies and the stored text. Their meaning is checked by `KeyService.check_policy`."""

from __future__ import annotations

import msgspec

from sparewatt.core.errors import InvalidField


def policy_text(policy: msgspec.Raw) -> str | None:
    """The text to store: an object of the vocabulary, or a query as a JSON string. None for null.

    Raises InvalidField for JSON of any other kind.
    """
    text = bytes(policy).strip()
    if text in (b"", b"null"):
        return None
    if text[:1] not in b'{"':
        raise InvalidField("A policy is an object, or a query as text.", param="policy")
    return text.decode()


def shown_policy(policy: str | None) -> msgspec.Raw:
    """The stored text, unchanged, as a part of a JSON reply."""
    return msgspec.Raw(b"null" if policy is None else policy.encode())
