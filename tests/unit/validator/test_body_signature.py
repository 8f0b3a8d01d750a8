"""A large body counts by the signature of its sender for its receiver, known before a byte of it is read."""

from __future__ import annotations

from sparewatt.protocol.signing import SigningKey, keccak256
from sparewatt.protocol.typed_message import contract_domain
from sparewatt.validator.body_signature import HASH_HEADER, SIGNATURE_HEADER, SignedBody, read_body_signature, sign_body

DOMAIN = contract_domain(chain_id=31_337, contract="0x" + "7" * 40)
OTHER_CHAIN = contract_domain(chain_id=1, contract="0x" + "7" * 40)
SENDER, RECEIVER, OTHER = (SigningKey(bytes([number]) * 32) for number in (1, 2, 3))
BODY = b"a large proposal"


def signed() -> dict[str, str]:
    return sign_body(BODY, key=SENDER, receiver=RECEIVER.address, domain=DOMAIN)


def read(headers: dict[str, str]) -> SignedBody | None:
    return read_body_signature(headers, receiver=RECEIVER.address, domain=DOMAIN)


def test_the_sender_is_known_by_the_head_alone() -> None:
    assert read(signed()) == (SENDER.address.lower(), keccak256(BODY))


def test_a_signature_for_another_receiver_chain_or_body_is_that_of_a_stranger() -> None:
    elsewhere = read_body_signature(signed(), receiver=OTHER.address, domain=DOMAIN)
    other_chain = read_body_signature(signed(), receiver=RECEIVER.address, domain=OTHER_CHAIN)
    other_body = read(signed() | {HASH_HEADER: "0x" + keccak256(b"waste").hex()})
    for found in (elsewhere, other_chain, other_body):
        assert found is None or found.sender != SENDER.address.lower()


def test_a_head_without_a_readable_signature_is_unsigned() -> None:
    for broken in ("", "0x", "0x" + "0" * 130, "0x" + "g" * 130, signed()[SIGNATURE_HEADER].upper()):
        assert read(signed() | {SIGNATURE_HEADER: broken}) is None
    assert read(signed() | {HASH_HEADER: "0x12"}) is None
    assert read({}) is None
