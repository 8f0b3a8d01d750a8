"""The fees of the network: one table, in one place."""

from __future__ import annotations

INFERENCE_FEE_BPS = 500
"""Of what a payer pays for an answer: 5 %. The node's owner gets the rest."""

BPS_PER_WHOLE = 10_000


def inference_fee(gross: int) -> int:
    """In nano-USD, as the gross. Rounded down: the remainder is the owner's."""
    return gross * INFERENCE_FEE_BPS // BPS_PER_WHOLE
