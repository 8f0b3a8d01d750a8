"""Receipts: a node signs what it delivered of a job, the gateway countersigns what it received of a node.

Both are EIP-712 messages over secp256k1 keys, so that a chain, or anybody, can check them later. Durations are whole
milliseconds, since that is what can be signed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from sparewatt.core.limits import MODEL_ID_CHARS_MAX
from sparewatt.protocol.node import ShortText
from sparewatt.protocol.signing import Domain, Field, keccak256, typed_digest

_DOMAIN = Domain(name="Sparewatt receipts", version="1")
_Count = Annotated[int, Meta(ge=0, le=1 << 32)]
_Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
Signature = Annotated[str, Meta(pattern=r"^[0-9a-f]{130}\Z")]
BATCH_MAX = 1_000


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """What a node says that it delivered of one job."""

    job: ShortText
    node: Annotated[str, Meta(pattern=r"^0x[0-9a-f]{40}\Z")]
    model: Annotated[str, Meta(min_length=1, max_length=MODEL_ID_CHARS_MAX)]
    prompt_tokens: _Count
    completion_tokens: _Count
    first_token_ms: _Count
    duration_ms: _Count
    weights_digest: Annotated[str, Meta(max_length=128)] = ""

    def digest(self) -> bytes:
        return typed_digest(
            _DOMAIN,
            "Receipt",
            [
                Field("string", "job", self.job),
                Field("address", "node", self.node),
                Field("string", "model", self.model),
                Field("uint256", "promptTokens", self.prompt_tokens),
                Field("uint256", "completionTokens", self.completion_tokens),
                Field("uint256", "firstTokenMs", self.first_token_ms),
                Field("uint256", "durationMs", self.duration_ms),
                Field("string", "weightsDigest", self.weights_digest),
            ],
        )


class SignedReceipt(msgspec.Struct, frozen=True, gc=False):
    receipt: Receipt
    signature: Signature


class Countersigned(msgspec.Struct, frozen=True):
    """The gateway has these receipts of a node, by digest, and says so once for all of them."""

    node: Annotated[str, Meta(pattern=r"^0x[0-9a-f]{40}\Z")]
    digests: Annotated[list[_Digest], Meta(min_length=1, max_length=BATCH_MAX)]
    gateway: Annotated[str, Meta(pattern=r"^0x[0-9a-f]{40}\Z")]
    signature: Signature


def countersign_digest(node: str, digests: Sequence[bytes]) -> bytes:
    """What the gateway signs: the node, and the hash of the digests in their order."""
    return typed_digest(
        _DOMAIN,
        "Countersignature",
        [Field("address", "node", node), Field("bytes32", "receipts", keccak256(b"".join(digests)))],
    )
