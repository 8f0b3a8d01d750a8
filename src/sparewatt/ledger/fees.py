"""The fees of the network: one table, in one place."""

from __future__ import annotations

from sparewatt.core.money import Nano

INFERENCE_BPS = 500
"""Of what a payer pays for an answer: 5 %. The node's owner gets the rest."""

BPS = 10_000


def inference_fee(gross: Nano) -> Nano:
    """Rounded down: the remainder is the owner's."""
    return Nano(gross * INFERENCE_BPS // BPS)
