"""Receipts: every field is signed, and the digest is what other people's tools compute."""

from __future__ import annotations

import hashlib
import json

import msgspec
import pytest

from sparewatt.core.limits import LINK_FRAME_BYTES_MAX
from sparewatt.core.rng import seeded
from sparewatt.protocol.link.receipts import (
    BATCH_MAX,
    SHEET_MAX,
    Countersignature,
    Receipt,
    ReceiptProof,
    SheetSignature,
    SignedReceipt,
    SignedSheet,
    countersign_digest,
    sheet_digest,
)
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
SIGNATURE = KEY.sign(RECEIPT.typed_digest())
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
        return recover_address(receipt.typed_digest(), signature)
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


def test_the_digest_of_a_single_receipt_is_eip_712() -> None:
    fields = msgspec.structs.asdict(RECEIPT)
    camel = {name["name"]: value for name, value in zip(TYPES["Receipt"], fields.values(), strict=True)}
    message = encode_typed_data(
        domain_data={"name": "Sparewatt receipts", "version": "1"}, message_types=TYPES, message_data=camel
    )
    assert keccak256(b"\x19" + message.version + message.header + message.body) == RECEIPT.typed_digest()
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
    assert one.typed_digest() != other.typed_digest()
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
def test_a_receipt_of_another_shape_is_refused(change: dict[str, object]) -> None:
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
    assert one not in (RECEIPT.digest(), RECEIPT.typed_digest(), sheet_digest(KEY.address, digests))


@pytest.mark.parametrize("digests", [[], ["zz"], ["AA" * 32], ["aa" * 32] * (BATCH_MAX + 1)], ids=len)
def test_a_countersignature_of_another_shape_is_refused(digests: list[str]) -> None:
    body = {"node": KEY.address, "digests": digests, "gateway": KEY.address, "signature": SIGNATURE.hex()}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(body, Countersignature)


# sheets

OTHERS = [msgspec.structs.replace(RECEIPT, job=f"match_{n}", completion_tokens=n) for n in range(3)]
SHEET_DIGESTS = [receipt.digest() for receipt in (RECEIPT, *OTHERS)]
SEAL = SheetSignature.of(SHEET_DIGESTS, KEY.sign(sheet_digest(KEY.address, SHEET_DIGESTS)).hex())


def test_a_receipts_digest_in_a_sheet_is_the_hash_of_its_json() -> None:
    text = json.dumps(msgspec.to_builtins(RECEIPT), separators=(",", ":"))
    assert RECEIPT.digest() == hashlib.sha256(text.encode()).digest()


def test_the_digest_of_a_sheet_is_eip_712() -> None:
    types = {"ReceiptSheet": [{"name": "node", "type": "address"}, {"name": "receipts", "type": "bytes32"}]}
    message = encode_typed_data(
        domain_data={"name": "Sparewatt receipts", "version": "1"},
        message_types=types,
        message_data={"node": KEY.address, "receipts": keccak256(b"".join(SHEET_DIGESTS))},
    )
    whole = keccak256(b"\x19" + message.version + message.header + message.body)
    assert whole == sheet_digest(KEY.address, SHEET_DIGESTS)


def test_each_receipt_of_a_sheet_can_be_proved_without_the_others() -> None:
    for receipt in (RECEIPT, *OTHERS):
        assert ReceiptProof(receipt, SEAL).is_valid


@pytest.mark.parametrize("field", Receipt.__struct_fields__)
def test_a_single_bit_of_any_field_of_a_receipt_in_a_sheet_is_noticed(field: str) -> None:
    for other in neighbours(getattr(RECEIPT, field)):
        assert not ReceiptProof(msgspec.structs.replace(RECEIPT, **{field: other}), SEAL).is_valid


@pytest.mark.parametrize(
    "seal",
    [
        SheetSignature(SEAL.digests[::-1], SEAL.signature),
        SheetSignature(SEAL.digests[:2], SEAL.signature),
        SheetSignature(SEAL.digests, SIGNATURE.hex()),
        SheetSignature(SEAL.digests, KEY.sign(countersign_digest(KEY.address, SHEET_DIGESTS)).hex()),
        SheetSignature(SEAL.digests, "00" * 65),
    ],
    ids=["another order", "fewer", "of one receipt", "a gateway's word", "none"],
)
def test_the_signature_of_another_sheet_proves_nothing(seal: SheetSignature) -> None:
    assert not ReceiptProof(RECEIPT, seal).is_valid


def test_a_sheet_is_decoded_unless_it_is_too_long() -> None:
    sheet = SignedSheet([RECEIPT, *OTHERS], SEAL.signature)
    assert msgspec.json.decode(msgspec.json.encode(sheet), type=SignedSheet) == sheet
    assert sheet.is_signed_by(KEY.address, sheet.digests())
    for receipts in ([], [RECEIPT] * (SHEET_MAX + 1)):
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(msgspec.json.encode(SignedSheet(receipts, SEAL.signature)), type=SignedSheet)


def test_the_longest_sheet_fits_into_a_frame() -> None:
    longest = Receipt("\U0001f600" * 100, KEY.address, "\x01" * 256, 1 << 32, 1 << 32, 1 << 32, 1 << 32, "\x01" * 128)
    sheet = SignedSheet([longest] * SHEET_MAX, SEAL.signature)
    payload = msgspec.json.encode(sheet)
    assert len(payload) < LINK_FRAME_BYTES_MAX
    assert msgspec.json.decode(payload, type=SignedSheet) == sheet
