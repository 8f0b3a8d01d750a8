"""Keys, digests and signatures against eth_account, which shares no code with ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparewatt.core.rng import seeded
from sparewatt.protocol.link.frames import challenge_digest
from sparewatt.protocol.signing import (
    BadSignature,
    Domain,
    SigningKey,
    StructMember,
    hash_struct,
    keccak256,
    recover_address,
    recover_public_key,
    typed_digest,
)
from tests.unit.protocol.oracle import Account, SignableMessage, encode_typed_data

ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
KEY = SigningKey.generate(rng=seeded(1))
HOST, GATEWAY_NONCE, NODE_NONCE = "gateway.example:443", "11" * 32, "a5" * 32
DIGEST = challenge_digest(host=HOST, node_id=KEY.address, gateway_nonce=GATEWAY_NONCE, node_nonce=NODE_NONCE)
SIGNATURE = KEY.sign(DIGEST)
CHALLENGE_TYPE = {
    "LinkChallenge": [
        {"name": "host", "type": "string"},
        {"name": "node", "type": "address"},
        {"name": "gatewayNonce", "type": "bytes32"},
        {"name": "nodeNonce", "type": "bytes32"},
    ]
}


def oracle(domain: dict[str, Any], types: dict[str, Any], message: dict[str, Any]) -> SignableMessage:
    return encode_typed_data(domain_data=domain, message_types=types, message_data=message)


def oracle_challenge() -> SignableMessage:
    message = {
        "host": HOST,
        "node": KEY.address,
        "gatewayNonce": bytes.fromhex(GATEWAY_NONCE),
        "nodeNonce": bytes.fromhex(NODE_NONCE),
    }
    return oracle({"name": "Sparewatt link", "version": "1"}, CHALLENGE_TYPE, message)


def digest_of(message: SignableMessage) -> bytes:
    return keccak256(b"\x19" + message.version + message.header + message.body)


def recovers(digest: bytes, signature: bytes) -> str | None:
    try:
        return recover_address(digest, signature)
    except BadSignature:
        return None


def flip(data: bytes, bit: int) -> bytes:
    return bytes(byte ^ (1 << bit % 8 if i == bit // 8 else 0) for i, byte in enumerate(data))


# against the oracle


@pytest.mark.parametrize("seed", range(20))
def test_a_keys_address_is_the_one_ethereum_gives_it(seed: int) -> None:
    key = SigningKey.generate(rng=seeded(seed))
    assert key.address == Account.from_key(key.secret_hex()).address.lower()


def test_the_challenge_digest_is_eip_712() -> None:
    assert digest_of(oracle_challenge()) == DIGEST


def test_our_signature_of_the_challenge_is_the_one_ethereum_makes() -> None:
    assert Account.from_key(KEY.secret_hex()).sign_message(oracle_challenge()).signature == SIGNATURE
    assert Account.recover_message(oracle_challenge(), signature=SIGNATURE).lower() == KEY.address


@pytest.mark.parametrize("seed", range(20))
def test_a_signature_made_by_ethereum_recovers_here(seed: int) -> None:
    account = Account.from_key(seeded(seed).randbytes(32))
    signed = account.sign_message(oracle_challenge())
    assert recover_address(DIGEST, bytes(signed.signature)) == account.address.lower()


def test_a_domain_with_chain_and_contract_and_all_types_is_eip_712() -> None:
    contract = "0x" + "ab" * 20
    types = {
        "Bid": [
            {"name": "who", "type": "address"},
            {"name": "price", "type": "uint256"},
            {"name": "note", "type": "bytes"},
        ]
    }
    message = oracle(
        {"name": "Market", "version": "2", "chainId": 31337, "verifyingContract": contract},
        types,
        {"who": KEY.address, "price": 2**256 - 1, "note": b"\x00\xff"},
    )
    fields = [
        StructMember("address", "who", KEY.address),
        StructMember("uint256", "price", 2**256 - 1),
        StructMember("bytes", "note", b"\x00\xff"),
    ]
    domain = Domain("Market", "2", chain_id=31337, verifying_contract=contract)
    assert typed_digest(domain, "Bid", fields) == digest_of(message)


# what is no signature


def test_a_signature_recovers_its_signer() -> None:
    assert recover_address(DIGEST, SIGNATURE) == KEY.address


def test_the_other_valid_form_of_a_signature_is_refused() -> None:
    """The curve accepts (r, n - s) with the other parity as well; if we did, a signature could be written twice."""
    s = int.from_bytes(SIGNATURE[32:64], "big")
    twin = SIGNATURE[:32] + (ORDER - s).to_bytes(32, "big") + bytes([27 + 28 - SIGNATURE[64]])
    assert Account._recover_hash(DIGEST, signature=twin).lower() == KEY.address
    with pytest.raises(BadSignature, match="low"):
        recover_address(DIGEST, twin)


@pytest.mark.parametrize("v", [0, 1, 26, 29, 30, 35, 255])
def test_another_last_byte_is_refused(v: int) -> None:
    with pytest.raises(BadSignature):
        recover_address(DIGEST, SIGNATURE[:64] + bytes([v]))


@pytest.mark.parametrize("n_bytes", [0, 1, 63, 64, 66, 130])
def test_another_length_is_refused(n_bytes: int) -> None:
    with pytest.raises(BadSignature):
        recover_address(DIGEST, (SIGNATURE * 2)[:n_bytes])


@pytest.mark.parametrize("r", [0, 5, ORDER, 2**256 - 1])
@pytest.mark.parametrize("s", [0, 1, ORDER // 2])
def test_numbers_that_are_no_point_of_the_curve_are_refused(r: int, s: int) -> None:
    signature = r.to_bytes(32, "big") + s.to_bytes(32, "big") + b"\x1b"
    with pytest.raises(BadSignature):
        recover_address(DIGEST, signature)


@pytest.mark.parametrize("n_bytes", [0, 31, 33])
def test_a_digest_of_another_length_is_refused(n_bytes: int) -> None:
    with pytest.raises(BadSignature):
        recover_address(bytes(n_bytes), SIGNATURE)


# one bit


def test_no_bit_of_the_signature_can_be_changed() -> None:
    assert all(recovers(DIGEST, flip(SIGNATURE, bit)) != KEY.address for bit in range(8 * len(SIGNATURE)))


@pytest.mark.parametrize("field", ["gateway_nonce", "node_nonce"])
def test_no_bit_of_a_nonce_can_be_changed(field: str) -> None:
    given = {"gateway_nonce": GATEWAY_NONCE, "node_nonce": NODE_NONCE}
    for bit in range(256):
        changed = given | {field: flip(bytes.fromhex(given[field]), bit).hex()}
        assert recovers(challenge_digest(host=HOST, node_id=KEY.address, **changed), SIGNATURE) != KEY.address


def test_no_bit_of_the_host_can_be_changed() -> None:
    for bit in range(8 * len(HOST)):
        host = flip(HOST.encode(), bit).decode("latin-1")
        digest = challenge_digest(host=host, node_id=KEY.address, gateway_nonce=GATEWAY_NONCE, node_nonce=NODE_NONCE)
        assert recovers(digest, SIGNATURE) != KEY.address


def test_no_bit_of_the_node_can_be_changed() -> None:
    """Neither the signer nor the node that is claimed instead comes out."""
    for bit in range(160):
        claimed = "0x" + flip(bytes.fromhex(KEY.address[2:]), bit).hex()
        digest = challenge_digest(
            host=HOST, node_id=type(KEY.address)(claimed), gateway_nonce=GATEWAY_NONCE, node_nonce=NODE_NONCE
        )
        assert recovers(digest, SIGNATURE) not in (KEY.address, claimed)


def test_the_nonces_cannot_change_places() -> None:
    swapped = challenge_digest(host=HOST, node_id=KEY.address, gateway_nonce=NODE_NONCE, node_nonce=GATEWAY_NONCE)
    assert recovers(swapped, SIGNATURE) != KEY.address


# keys and fields


@pytest.mark.parametrize("n_bytes", [0, 1, 16, 31, 33, 64])
def test_a_secret_of_another_length_is_no_key(n_bytes: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        SigningKey(b"\x01" * n_bytes)


@pytest.mark.parametrize("number", [0, ORDER, 2**256 - 1])
def test_a_number_outside_the_curve_is_no_key(number: int) -> None:
    with pytest.raises(ValueError, match="scalar"):
        SigningKey(number.to_bytes(32, "big"))


def test_a_key_that_begins_with_zeros_survives_being_written_and_read(tmp_path: Path) -> None:
    key = SigningKey(bytes(31) + b"\x01")
    path = tmp_path / "key"
    path.write_text(key.secret_hex() + "\n")
    assert SigningKey.read(path).address == key.address


def test_a_keys_text_does_not_show_its_secret() -> None:
    assert KEY.secret_hex() not in f"{KEY!r} {KEY}"


@pytest.mark.parametrize(
    "field",
    [
        StructMember("uint256", "x", -1),
        StructMember("uint256", "x", 1 << 256),
        StructMember("uint256", "x", "1"),
        StructMember("bytes32", "x", bytes(31)),
        StructMember("address", "x", "0x" + "a" * 39),
        StructMember("address", "x", "0x" + " " * 40),
        StructMember("address", "x", "zz" + "a" * 40),
        StructMember("string", "x", b"bytes"),
        StructMember("int8", "x", 1),
    ],
)
def test_a_value_that_does_not_fit_its_type_is_not_signed(field: StructMember) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        typed_digest(Domain("d", "1"), "T", [field])


def test_a_nested_struct_enters_as_its_hash_and_its_type_text() -> None:
    inner = hash_struct("Row", [StructMember("uint8", "zone", 3)])
    rows = StructMember("Row[]", "rows", (inner,))
    text = b"Rows(Row[] rows)Row(uint8 zone)"
    assert hash_struct("Rows", [rows], nested_types="Row(uint8 zone)") == keccak256(keccak256(text) + keccak256(inner))
    with pytest.raises(ValueError, match="rows does not fit"):
        hash_struct("Rows", [StructMember("Row[]", "rows", (b"short",))])


def test_a_public_key_is_recovered_from_its_signature() -> None:
    digest = keccak256(b"a commit")
    assert recover_public_key(digest, KEY.sign(digest)) == KEY.public_key
    with pytest.raises(BadSignature):
        recover_public_key(digest, KEY.sign(digest)[:64])


def test_a_shared_secret_needs_a_public_key() -> None:
    with pytest.raises(ValueError, match=r".+"):
        KEY.shared_secret(bytes(33))
