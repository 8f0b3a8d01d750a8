"""Authenticated encryption: AES-256-GCM under a key that HKDF derives from a secret.

Sealed bytes are bound to a name (their owner, their row): under another name they do not open.
"""

from __future__ import annotations

from Crypto.Cipher import AES
from Crypto.Cipher._mode_gcm import GcmMode
from Crypto.Hash import SHA256
from Crypto.Protocol.KDF import HKDF

from sparewatt.core.rng import Rng

_FORMAT = b"\x01"  # a version, in case the format changes
_NONCE_BYTES = 12
_TAG_BYTES = 16


class Sealer:
    """What is sealed for one `purpose` does not open for another."""

    def __init__(self, secret: bytes, *, purpose: bytes, rng: Rng) -> None:
        self._key = derive_key(secret, purpose)
        self._rng = rng

    def seal(self, plain: bytes, *, bound_to: str) -> bytes:
        nonce = self._rng.randbytes(_NONCE_BYTES)
        text, tag = self._cipher(nonce, bound_to).encrypt_and_digest(plain)
        return _FORMAT + nonce + text + tag

    def open(self, sealed: bytes, *, bound_to: str) -> bytes:
        """Raises ValueError if it was sealed for another name, purpose or secret, or was changed."""
        form, nonce = sealed[:1], sealed[1 : 1 + _NONCE_BYTES]
        if form != _FORMAT:
            raise ValueError("sealed in a format that this version does not know")
        cipher = self._cipher(nonce, bound_to)
        return cipher.decrypt_and_verify(sealed[1 + _NONCE_BYTES : -_TAG_BYTES], sealed[-_TAG_BYTES:])

    def _cipher(self, nonce: bytes, bound_to: str) -> GcmMode:
        cipher = AES.new(self._key, AES.MODE_GCM, nonce=nonce, mac_len=_TAG_BYTES)
        cipher.update(bound_to.encode())
        return cipher


def derive_key(secret: bytes, purpose: bytes) -> bytes:
    """A key of 32 bytes. A hash of the secret, or the key of another purpose, reveals nothing of it."""
    derived = HKDF(secret, 32, b"", SHA256, context=purpose)
    if not isinstance(derived, bytes):
        raise TypeError("HKDF returned several keys")
    return derived
