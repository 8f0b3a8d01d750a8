"""Who signed a message. A signature is recovered once: the same message comes again with every resend."""

from __future__ import annotations

from collections.abc import Container

from sparewatt.protocol.signing import BadSignature, Domain, recover_address
from sparewatt.protocol.typed_message import TypedMessage, message_digest

REMEMBERED_MAX = 4_096
"""Signatures of one match: lists, votes and commits of 32 validators and 128 bidders, several times over."""


class SignatureCheck:
    """Remembers signatures of `known` keys only, so that strangers push nobody out."""

    def __init__(self, domain: Domain, *, known: Container[str]) -> None:
        self._domain = domain
        self._known = known
        self._signers: dict[tuple[TypedMessage, bytes], str] = {}

    def signer_of(self, message: TypedMessage, signature: bytes) -> str | None:
        """The address of a known key, or None."""
        if (found := self._signers.get((message, signature))) is not None:
            return found
        try:
            signer = recover_address(message_digest(self._domain, message), signature).lower()
        except (BadSignature, ValueError):  # ValueError: a member does not fit its type
            return None
        if signer not in self._known:
            return None
        if len(self._signers) >= REMEMBERED_MAX:
            del self._signers[next(iter(self._signers))]
        self._signers[message, signature] = signer
        return signer
