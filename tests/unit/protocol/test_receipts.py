"""Receipts: every field is signed, and the digest is what other people's tools compute."""

from __future__ import annotations

import msgspec
import pytest

from sparewatt.core.rng import seeded
from sparewatt.protocol.receipts import BATCH_MAX, Countersigned, Receipt, SignedReceipt, countersign_digest
from sparewatt.protocol.signing import BadSignature, SigningKey, keccak256, recover_address
from tests.unit.protocol.oracle import encode_typed_data

KEY = SigningKey.generate(rng=seeded(1))
RECEIPT = Receipt(
    job="match_01",
    node=KEY.address,
    model="stub",
    prompt_tokens=10,
    completion_tokens=20,
    first_token_ms=30,
    duration_ms=40,
    weights_digest="sha256:abc",
)
SIGNATURE = KEY.sign(RECEIPT.digest())
TYPES = {
    "Receipt": [
        {"name": "job", "type": "string"},
        {"name": "node", "type": "address"},
        {"name": "model", "type": "string"},
        {"name": "promptTokens", "type": "uint256"},
        {"name": "completionTokens", "type": "uint256"},
        {"name": "firstTokenMs", "type": "uint256"},
        {"name": "durationMs", "type": "uint256"},
        {"name": "weightsDigest", "type": "string"},
    ]
}


def signer_of(receipt: Receipt, signature: bytes = SIGNATURE) -> str | None:
    try:
        return recover_address(receipt.digest(), signature)
    except BadSignature:
        return None


def neighbours(value: str | int) -> list[str | int]:
    """The same with one bit the other way, as far as it stays a value of the field."""
    if isinstance(value, int):
        return [value ^ (1 << bit) for bit in range(32)]
    if value.startswith("0x"):
        return ["0x" + bytes(_flip(bytes.fromhex(value[2:]), at)).hex() for at in range(160)]
    return [bytes(_flip(value.encode(), at)).decode() for at in range(8 * len(value)) if at % 8 != 7]


def _flip(data: bytes, at: int) -> bytearray:
    flipped = bytearray(data)
    flipped[at // 8] ^= 1 << at % 8
    return flipped


def test_the_digest_is_that_of_eip_712() -> None:
    fields = msgspec.structs.asdict(RECEIPT)
    camel = {name["name"]: value for name, value in zip(TYPES["Receipt"], fields.values(), strict=True)}
    message = encode_typed_data(
        domain_data={"name": "Sparewatt receipts", "version": "1"}, message_types=TYPES, message_data=camel
    )
    assert keccak256(b"\x19" + message.version + message.header + message.body) == RECEIPT.digest()
    assert signer_of(RECEIPT) == KEY.address


@pytest.mark.parametrize("field", Receipt.__struct_fields__)
def test_a_single_bit_of_any_field_is_noticed(field: str) -> None:
    for other in neighbours(getattr(RECEIPT, field)):
        forged = msgspec.structs.replace(RECEIPT, **{field: other})
        assert forged != RECEIPT
        assert signer_of(forged) != KEY.address


def test_a_single_bit_of_the_signature_is_noticed() -> None:
    for at in range(8 * len(SIGNATURE)):
        assert signer_of(RECEIPT, bytes(_flip(SIGNATURE, at))) != KEY.address


def test_text_does_not_move_from_one_field_to_the_next() -> None:
    one = msgspec.structs.replace(RECEIPT, job="ab", model="c")
    other = msgspec.structs.replace(RECEIPT, job="a", model="bc")
    assert one.digest() != other.digest()


@pytest.mark.parametrize(
    "change",
    [
        {"job": ""},
        {"job": "a\0"},
        {"job": "a" * 101},
        {"node": "0x12"},
        {"node": KEY.address.upper()},
        {"node": KEY.address + "\n"},
        {"model": ""},
        {"prompt_tokens": -1},
        {"completion_tokens": 1 << 33},
        {"completion_tokens": 1.5},
        {"duration_ms": "3"},
        {"weights_digest": "a" * 129},
    ],
    ids=str,
)
def test_a_receipt_of_another_shape_is_not_read(change: dict[str, object]) -> None:
    body = msgspec.to_builtins(SignedReceipt(RECEIPT, SIGNATURE.hex()))
    assert msgspec.convert(body, SignedReceipt).receipt == RECEIPT
    body["receipt"] |= change
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode(body), type=SignedReceipt)


def test_a_countersignature_covers_the_node_and_the_digests_in_their_order() -> None:
    digests = [bytes([n]) * 32 for n in range(3)]
    one = countersign_digest(KEY.address, digests)
    assert one != countersign_digest(KEY.address, digests[::-1])
    assert one != countersign_digest(KEY.address, digests[:2])
    assert one != countersign_digest("0x" + "11" * 20, digests)
    assert one != RECEIPT.digest()


@pytest.mark.parametrize("digests", [[], ["zz"], ["AA" * 32], ["aa" * 32] * (BATCH_MAX + 1)], ids=len)
def test_a_countersignature_of_another_shape_is_not_read(digests: list[str]) -> None:
    body = {"node": KEY.address, "digests": digests, "gateway": KEY.address, "signature": SIGNATURE.hex()}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(body, Countersigned)
