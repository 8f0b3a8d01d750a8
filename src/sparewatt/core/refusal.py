"""When a node should say no to a job that was just sent to it. One rule, used by the node and by the simulator.

A gateway's picture of a node is a heartbeat old, and other gateways send work too. The gateway says what first-token
time it counted on; a node that knows it will be much later says so at once, with its fresh state, and the job goes
elsewhere for the price of one round trip.
"""

from __future__ import annotations

REFUSE_FACTOR = 1.5
"""An estimate this much longer than promised is no longer noise in the prediction."""
REFUSE_SLACK_S = 0.75
"""A refusal costs a round trip and a second choice; below this much extra waiting it is not worth it."""


def would_refuse(*, own_ttft_s: float, promised_ttft_s: float) -> bool:
    """Whether the node's own estimate of the first token is too far beyond what the gateway counted on."""
    return own_ttft_s > REFUSE_FACTOR * promised_ttft_s + REFUSE_SLACK_S
