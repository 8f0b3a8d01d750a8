from __future__ import annotations

import pytest

from sparewatt.cli.match_challenge import challenge_json, print_challenge
from sparewatt.validator.challenge import MatchChallenge, Proof, ProofResult
from sparewatt.validator.record_fetch import SilentSource
from tests.unit.validator.test_challenge import a_fault

FAULT = a_fault()


def a_challenge(*proofs: Proof) -> MatchChallenge:
    return MatchChallenge("0x" + "11" * 32, 2, ("http://a",), (SilentSource("http://b", "It is away."),), proofs)


def test_faults_are_listed_with_what_became_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    proofs = (
        Proof(FAULT, ProofResult.PROVABLE),
        Proof(FAULT, ProofResult.ALREADY_PUNISHED, "ALREADY_PUNISHED"),
        Proof(FAULT, ProofResult.REFUSED, "TOO_LATE"),
    )
    print_challenge(a_challenge(*proofs), is_sent=False)
    text, notes = capsys.readouterr()
    assert text.count("DOUBLE_SIGN") == 3
    assert "already punished" in text
    assert "refused: TOO_LATE" in text
    assert FAULT.culprits[0][:10] in text
    assert "Without http://b: It is away." in notes
    assert "Nothing was sent. Give --key" in notes


def test_no_fault_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    print_challenge(a_challenge(), is_sent=True)
    assert "No fault is proven by these records." in capsys.readouterr().out


def test_json_has_the_transaction() -> None:
    document = challenge_json(a_challenge(Proof(FAULT, ProofResult.PUNISHED, tx_hash="0xab")))
    assert document["attempt"] == 2
    assert [(each["fault"], each["result"], each["tx"]) for each in document["faults"]] == [
        ("DOUBLE_SIGN", "punished", "0xab")
    ]
    assert document["silent"] == [{"source": "http://b", "why": "It is away."}]
