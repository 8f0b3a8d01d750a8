"""Signatures: secp256k1 keys, Ethereum addresses and EIP-712 typed data.

A node or account is named by the address of its key. A member of a struct is a plain value, an array of them, or the
hash of a nested struct. A signature is 65 bytes (r, s, v) with the low s, so each message has exactly one valid
signature per key.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from coincurve import PrivateKey, PublicKey
from Crypto.Hash import keccak

from sparewatt.core.errors import SparewattError
from sparewatt.core.ids import NodeId
from sparewatt.core.rng import Rng

_CURVE_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}")
_UINT = re.compile(r"uint(8|16|32|64|128|160|256)")
_SECRET_BYTES = 32
_TEXTS_HASHED_MAX = 1_024
"""Cached hashes of texts: type strings and model names, which every receipt repeats."""

Value = str | int | bytes | Sequence[str] | Sequence[int] | Sequence[bytes]


class BadSignature(SparewattError):
    """The bytes are not a signature in its one valid form."""

    code = "bad_signature"
    status = 400


def keccak256(data: bytes) -> bytes:
    return keccak.new(digest_bits=256, data=data).digest()


@lru_cache(maxsize=_TEXTS_HASHED_MAX)
def _hash_text(text: str) -> bytes:
    return keccak256(text.encode())


@dataclass(frozen=True, slots=True)
class Domain:
    """The EIP-712 domain: what a signature is for, so that it is worth nothing in another context."""

    name: str
    version: str
    chain_id: int | None = None
    verifying_contract: str | None = None

    @lru_cache(maxsize=64)  # noqa: B019 (a frozen value: the cache is small and bounded)
    def separator(self) -> bytes:
        members = [StructMember("string", "name", self.name), StructMember("string", "version", self.version)]
        if self.chain_id is not None:
            members.append(StructMember("uint256", "chainId", self.chain_id))
        if self.verifying_contract is not None:
            members.append(StructMember("address", "verifyingContract", self.verifying_contract))
        return hash_struct("EIP712Domain", members)


class StructMember(NamedTuple):
    """A member of an EIP-712 struct."""

    type: str
    name: str
    value: Value


def _encode_value(member: StructMember) -> bytes:
    match member.type, member.value:
        case "string", str(text):
            return _hash_text(text)
        case "bytes", bytes(data):
            return keccak256(data)
        case kind, bytes(data) if len(data) == 32 and (kind == "bytes32" or kind[:1].isupper()):
            return data  # with a capital: a nested struct, as its hash
        case "address", str(address) if _ADDRESS.fullmatch(address):
            return bytes.fromhex(address[2:]).rjust(32, b"\0")
        case kind, int(number) if (bits := _UINT.fullmatch(kind)) and 0 <= number < 1 << int(bits[1]):
            return number.to_bytes(32, "big")
        case kind, list() | tuple() as items if kind.endswith("[]"):
            return keccak256(b"".join(_encode_value(StructMember(kind[:-2], member.name, item)) for item in items))
    raise ValueError(f"{member.name} does not fit the type {member.type}")


def hash_struct(name: str, members: Sequence[StructMember], *, nested_types: str = "") -> bytes:
    """`nested_types`: the type strings of the structs that members refer to, sorted by name."""
    type_text = f"{name}({','.join([f'{member.type} {member.name}' for member in members])}){nested_types}"
    return keccak256(_hash_text(type_text) + b"".join([_encode_value(member) for member in members]))


def typed_digest(domain: Domain, name: str, members: Sequence[StructMember], *, nested_types: str = "") -> bytes:
    """The 32 bytes that are signed (EIP-712)."""
    return keccak256(b"\x19\x01" + domain.separator() + hash_struct(name, members, nested_types=nested_types))


class SigningKey:
    """A secp256k1 private key. Neither repr nor logs show its secret."""

    __slots__ = ("_key", "address")

    def __init__(self, secret: bytes) -> None:
        """Raises ValueError if it is no key. The length is checked because coincurve pads a shorter one with zeros."""
        if len(secret) != _SECRET_BYTES:
            raise ValueError(f"a key has {_SECRET_BYTES} bytes")
        self._key = PrivateKey(secret)
        self.address = _address_of(self._key.public_key)

    @classmethod
    def generate(cls, *, rng: Rng) -> SigningKey:
        return cls(rng.randbytes(_SECRET_BYTES))

    @classmethod
    def read(cls, path: Path) -> SigningKey:
        return cls(bytes.fromhex(path.read_text().strip()))

    @property
    def public_key(self) -> bytes:
        """33 bytes, compressed."""
        return self._key.public_key.format()

    def secret_hex(self) -> str:
        return self._key.to_hex()

    def shared_secret(self, public_key: bytes) -> bytes:
        """ECDH: the x coordinate of the shared point. Raises ValueError if `public_key` is none."""
        return PublicKey(public_key).multiply(self._key.secret).format()[1:]

    def sign(self, digest: bytes) -> bytes:
        signature = self._key.sign_recoverable(digest, hasher=None)
        return signature[:64] + bytes([signature[64] + 27])


def recover_address(digest: bytes, signature: bytes) -> NodeId:
    """The signer's address. Raises BadSignature for anything but the one valid form."""
    return _address_of(_recover(digest, signature))


def recover_public_key(digest: bytes, signature: bytes) -> bytes:
    """The signer's key, compressed: what a secret is sealed to. Raises BadSignature as `recover_address` does."""
    return _recover(digest, signature).format()


def _recover(digest: bytes, signature: bytes) -> PublicKey:
    if len(signature) != 65 or signature[64] not in (27, 28):
        raise BadSignature("A signature has 65 bytes and ends in 27 or 28.")
    if int.from_bytes(signature[32:64], "big") > _CURVE_ORDER // 2:
        raise BadSignature("The signature's s is not the low one.")
    try:
        return PublicKey.from_signature_and_message(signature[:64] + bytes([signature[64] - 27]), digest, hasher=None)
    except ValueError:
        raise BadSignature("The signature belongs to no key.") from None


def _address_of(public: PublicKey) -> NodeId:
    return NodeId("0x" + keccak256(public.format(compressed=False)[1:])[12:].hex())
