"""Who signed: only known keys, each signature recovered once, and a bounded memory."""

from __future__ import annotations

import pytest

from sparewatt.market.match import signatures
from sparewatt.market.match.signatures import SignatureCheck
from sparewatt.protocol.contracts.match import Vote
from sparewatt.protocol.signing import keccak256, recover_address
from tests.unit.market.match.match_scene import DOMAIN, VOTE_KEYS, key_of, signed_by

KNOWN = frozenset(str(key.address) for key in VOTE_KEYS)


def vote(round_: int) -> Vote:
    return Vote(keccak256(b"order"), 0, round_, keccak256(b"task"))


@pytest.fixture
def recovered(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    digests: list[bytes] = []

    def counted(digest: bytes, signature: bytes) -> str:
        digests.append(digest)
        return recover_address(digest, signature)

    monkeypatch.setattr(signatures, "recover_address", counted)
    return digests


def test_a_known_key_is_named_and_recovered_once(recovered: list[bytes]) -> None:
    check = SignatureCheck(DOMAIN, known=KNOWN)
    signature = signed_by(VOTE_KEYS[0], vote(1))
    assert [check.signer_of(vote(1), signature) for _ in range(3)] == [VOTE_KEYS[0].address] * 3
    assert len(recovered) == 1


def test_another_message_or_signature_is_recovered_again(recovered: list[bytes]) -> None:
    check = SignatureCheck(DOMAIN, known=KNOWN)
    signature = signed_by(VOTE_KEYS[0], vote(1))
    check.signer_of(vote(1), signature)
    assert check.signer_of(vote(2), signature) != VOTE_KEYS[0].address
    assert check.signer_of(vote(1), signed_by(VOTE_KEYS[1], vote(1))) == VOTE_KEYS[1].address
    assert len(recovered) == 3


def test_strangers_are_nobody_and_not_remembered(recovered: list[bytes]) -> None:
    check = SignatureCheck(DOMAIN, known=KNOWN)
    signature = signed_by(key_of("a stranger"), vote(1))
    assert [check.signer_of(vote(1), signature) for _ in range(2)] == [None, None]
    assert len(recovered) == 2


@pytest.mark.parametrize("signature", [b"", bytes(65), b"\xff" * 65, bytes(64) + b"\x1b"])
def test_what_is_no_signature_is_nobodys(signature: bytes) -> None:
    assert SignatureCheck(DOMAIN, known=KNOWN).signer_of(vote(1), signature) is None


def test_a_message_out_of_its_type_is_nobodys() -> None:
    signature = signed_by(VOTE_KEYS[0], vote(1))
    assert SignatureCheck(DOMAIN, known=KNOWN).signer_of(vote(-1), signature) is None


def test_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch, recovered: list[bytes]) -> None:
    monkeypatch.setattr(signatures, "REMEMBERED_MAX", 2)
    check = SignatureCheck(DOMAIN, known=KNOWN)
    signed = [(vote(round_), signed_by(VOTE_KEYS[0], vote(round_))) for round_ in range(3)]
    for message, signature in [*signed, signed[2], signed[1]]:
        check.signer_of(message, signature)
    assert len(recovered) == 3
    check.signer_of(*signed[0])
    assert len(recovered) == 4
