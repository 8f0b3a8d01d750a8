"""Faults that public data proves, as text and JSON: who, what, and whether it is punished."""

from __future__ import annotations

from typing import Any

from sparewatt.cli import output
from sparewatt.cli.output import Column, left, prose
from sparewatt.validator.challenge import MatchChallenge, Proof, ProofResult

ADDRESS_CHARS = 10


def print_challenge(challenge: MatchChallenge, *, is_sent: bool) -> None:
    output.print_facts(
        [
            ("order", challenge.order_id),
            ("attempt", str(challenge.attempt)),
            ("records of", f"{len(challenge.sources)} validators"),
        ]
    )
    for each in challenge.silent:
        output.note(f"Without {each.source}: {each.why}")
    if not challenge.proofs:
        output.print_lines(["No fault is proven by these records."])
        return
    output.print_table(_COLUMNS, challenge.proofs)
    if not is_sent and any(proof.result is ProofResult.PROVABLE for proof in challenge.proofs):
        output.note("Nothing was sent. Give --key to prove them: a tenth of what the culprits lose is yours.")


def challenge_json(challenge: MatchChallenge) -> dict[str, Any]:
    return {
        "order_id": challenge.order_id,
        "attempt": challenge.attempt,
        "sources": list(challenge.sources),
        "silent": [{"source": each.source, "why": each.why} for each in challenge.silent],
        "faults": [
            {
                "fault": proof.fault.fault.name,
                "culprits": list(proof.fault.culprits),
                "contract": proof.fault.contract,
                "function": proof.fault.function,
                "why": proof.fault.why,
                "result": proof.result.value,
                "reason": proof.reason or None,
                "tx": proof.tx_hash or None,
            }
            for proof in challenge.proofs
        ],
    }


def _result(proof: Proof) -> str:
    return f"{proof.result.value}: {proof.reason}" if proof.result is ProofResult.REFUSED else proof.result.value


_COLUMNS: list[Column[Proof]] = [
    left("fault", lambda proof: proof.fault.fault.name),
    left("by", lambda proof: ", ".join(each[:ADDRESS_CHARS] for each in proof.fault.culprits)),
    left("result", _result),
    prose("why", lambda proof: proof.fault.why),
]
