"""Receipts: a node signs what it delivered of its jobs, the gateway countersigns the receipts that it has.

A *sheet* is a batch of receipts under one signature, over the receipts' digests in their order. So one receipt can be
proved with the digests of its sheet, without showing the others. Signatures are EIP-712 over secp256k1 keys, so that a
contract can verify them later. Older nodes sign each receipt by itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from sparewatt.protocol.link.node_report import MODEL_ID_CHARS_MAX, Address, Hex32, ShortText, Signature
from sparewatt.protocol.signing import BadSignature, Domain, StructMember, keccak256, recover_address, typed_digest

_DOMAIN = Domain(name="Sparewatt receipts", version="1")
_Count = Annotated[int, Meta(ge=0, le=1 << 32)]
BATCH_MAX = 1_000
SHEET_MAX = 64
"""Receipts of one sheet. The longest sheet fits into a frame of the link, and a proof is 2 kB."""
_encoder = msgspec.json.Encoder()


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """What a node claims to have delivered of one job."""

    job: ShortText
    node: Address
    model: Annotated[str, Meta(min_length=1, max_length=MODEL_ID_CHARS_MAX)]
    prompt_tokens: _Count
    completion_tokens: _Count
    first_token_ms: _Count
    duration_ms: _Count
    weights_digest: Annotated[str, Meta(max_length=128)] = ""

    def digest(self) -> bytes:
        """As one receipt of a sheet: SHA-256 of its JSON, the fields in this order and without spaces."""
        return hashlib.sha256(_encoder.encode(self)).digest()

    def typed_digest(self) -> bytes:
        """What older nodes sign: one receipt by itself."""
        return typed_digest(
            _DOMAIN,
            "Receipt",
            [
                StructMember("string", "job", self.job),
                StructMember("address", "node", self.node),
                StructMember("string", "model", self.model),
                StructMember("uint256", "promptTokens", self.prompt_tokens),
                StructMember("uint256", "completionTokens", self.completion_tokens),
                StructMember("uint256", "firstTokenMs", self.first_token_ms),
                StructMember("uint256", "durationMs", self.duration_ms),
                StructMember("string", "weightsDigest", self.weights_digest),
            ],
        )


class SignedReceipt(msgspec.Struct, frozen=True, gc=False):
    """One receipt by itself, from a node that knows no sheets."""

    receipt: Receipt
    signature: Signature

    @property
    def receipts(self) -> Sequence[Receipt]:
        return (self.receipt,)

    def digests(self) -> list[bytes]:
        return [self.receipt.typed_digest()]

    def is_signed_by(self, node: str, digests: Sequence[bytes]) -> bool:
        return _is_signed_by(node, digests[0], self.signature)

    def proof(self, _: Sequence[bytes], at: int) -> msgspec.Struct:
        """What proves that the node signed the receipt at this index."""
        return SignedReceipt(self.receipts[at], self.signature)


class SignedSheet(msgspec.Struct, frozen=True):
    """Receipts of one node under one signature."""

    receipts: Annotated[list[Receipt], Meta(min_length=1, max_length=SHEET_MAX)]
    signature: Signature

    def digests(self) -> list[bytes]:
        return [receipt.digest() for receipt in self.receipts]

    def is_signed_by(self, node: str, digests: Sequence[bytes]) -> bool:
        return _is_signed_by(node, sheet_digest(node, digests), self.signature)

    def proof(self, digests: Sequence[bytes], at: int) -> msgspec.Struct:
        """What proves that the node signed the receipt at this index."""
        return ReceiptProof(self.receipts[at], SheetSignature.of(digests, self.signature))


SignedReceipts = SignedReceipt | SignedSheet


class SheetSignature(msgspec.Struct, frozen=True):
    """A node's signature of a sheet, with the receipts' digests in place of the receipts."""

    digests: Annotated[list[Hex32], Meta(min_length=1, max_length=SHEET_MAX)]
    signature: Signature

    @classmethod
    def of(cls, digests: Sequence[bytes], signature: str) -> SheetSignature:
        return cls([digest.hex() for digest in digests], signature)


class ReceiptProof(msgspec.Struct, frozen=True):
    """One receipt of a sheet, and what proves that the node signed it."""

    receipt: Receipt
    seal: SheetSignature

    @property
    def is_valid(self) -> bool:
        digests, node = [bytes.fromhex(digest) for digest in self.seal.digests], self.receipt.node
        is_signed = _is_signed_by(node, sheet_digest(node, digests), self.seal.signature)
        return is_signed and self.receipt.digest() in digests


class Countersignature(msgspec.Struct, frozen=True):
    """The gateway confirms a batch of a node's receipts, by digest, with one signature."""

    node: Address
    digests: Annotated[list[Hex32], Meta(min_length=1, max_length=BATCH_MAX)]
    gateway: Address
    signature: Signature


def sheet_digest(node: str, digests: Sequence[bytes]) -> bytes:
    """What a node signs: its address, and the hash of its receipts' digests in their order."""
    return _digest_of("ReceiptSheet", node, digests)


def countersign_digest(node: str, digests: Sequence[bytes]) -> bytes:
    """What the gateway signs: the node's address, and the hash of the digests in their order."""
    return _digest_of("Countersignature", node, digests)


def _digest_of(struct_name: str, node: str, digests: Sequence[bytes]) -> bytes:
    receipts = StructMember("bytes32", "receipts", keccak256(b"".join(digests)))
    return typed_digest(_DOMAIN, struct_name, [StructMember("address", "node", node), receipts])


def _is_signed_by(node: str, digest: bytes, signature: str) -> bool:
    try:
        return recover_address(digest, bytes.fromhex(signature)) == node
    except BadSignature:
        return False
