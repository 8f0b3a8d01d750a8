"""Secrets of a lease, sealed by the renter's client to the node key of a candidate.

ECDH with an ephemeral secp256k1 key, HKDF-SHA256 and AES-256-GCM. The key is bound to order, attempt and provider, so
sealed bytes open nowhere else. The nonce is constant because every call derives a key of its own. A gateway keeps the
bytes and cannot read them; the caller puts the secret's name into the plaintext, so that it cannot swap two either.
"""

from __future__ import annotations

from dataclasses import dataclass

from Crypto.Cipher import AES
from Crypto.Cipher._mode_gcm import GcmMode
from Crypto.Hash import SHA256
from Crypto.Protocol.KDF import HKDF

from sparewatt.protocol.signing import SigningKey

PURPOSE = b"sparewatt/secret/1"
SECRET_BYTES_MAX = 64 * 1024
_PUBLIC_KEY_BYTES = 33
_TAG_BYTES = 16
_NONCE = bytes(12)
_SEPARATOR = b"\0"


def named_secret(name: str, value: str) -> bytes:
    """What is sealed: with its name, so that whoever carries two cannot swap them."""
    return name.encode() + _SEPARATOR + value.encode()


def read_named_secret(plain: bytes, name: str) -> str:
    """Raises ValueError if it is another one, or no text."""
    found, separator, value = plain.partition(_SEPARATOR)
    if not separator or found != name.encode():
        raise ValueError("The sealed value is that of another name.")
    return value.decode()


@dataclass(frozen=True, slots=True)
class SecretContext:
    """For whom and for which auction a secret is sealed."""

    order_id: bytes
    attempt: int
    provider: str

    def salt(self) -> bytes:
        return self.order_id + self.attempt.to_bytes(4, "big")

    def info(self) -> bytes:
        return PURPOSE + bytes.fromhex(self.provider[2:])


def seal_secret(plain: bytes, *, to_public_key: bytes, context: SecretContext, ephemeral: SigningKey) -> bytes:
    """The ephemeral public key, the ciphertext and its tag. `ephemeral` is a new random key for each call.

    Raises ValueError if the secret is too long or `to_public_key` is no key.
    """
    if len(plain) > SECRET_BYTES_MAX:
        raise ValueError(f"A secret has at most {SECRET_BYTES_MAX} bytes.")
    sender = ephemeral.public_key
    text, tag = _cipher(ephemeral.shared_secret(to_public_key), sender, context).encrypt_and_digest(plain)
    return sender + text + tag


def open_secret(sealed: bytes, *, node_key: SigningKey, context: SecretContext) -> bytes:
    """Raises ValueError if it was sealed to another key or auction, or was changed."""
    if not _PUBLIC_KEY_BYTES + _TAG_BYTES <= len(sealed) <= _PUBLIC_KEY_BYTES + SECRET_BYTES_MAX + _TAG_BYTES:
        raise ValueError("A sealed secret has a public key, a ciphertext and a tag.")
    sender = sealed[:_PUBLIC_KEY_BYTES]
    cipher = _cipher(node_key.shared_secret(sender), sender, context)
    return cipher.decrypt_and_verify(sealed[_PUBLIC_KEY_BYTES:-_TAG_BYTES], sealed[-_TAG_BYTES:])


def _cipher(shared: bytes, sender: bytes, context: SecretContext) -> GcmMode:
    """The sender's key is authenticated as well: a key and its mirror image share the same x coordinate."""
    derived = HKDF(shared, 32, context.salt(), SHA256, context=context.info())
    if not isinstance(derived, bytes):
        raise TypeError("HKDF returned several keys")
    cipher = AES.new(derived, AES.MODE_GCM, nonce=_NONCE, mac_len=_TAG_BYTES)
    cipher.update(sender)
    return cipher
