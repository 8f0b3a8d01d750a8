"""When a node refuses a job that was just sent to it. One rule, used by the node and by the simulator.

A gateway's picture of a node is one heartbeat old, and other gateways send work too. With a job the gateway sends the
time to first token (TTFT) that it predicted. A node that expects to be much later refuses at once, with its fresh
load, and the job goes to another node for the price of one round trip.
"""

from __future__ import annotations

REFUSE_FACTOR = 1.2
"""A smaller excess over the prediction is noise."""
REFUSE_SLACK_S = 0.15
"""A refusal costs a round trip and a second match; a shorter delay is not worth that. The job comes back to a node that
refused it if by its own word it is still the best."""


def would_refuse(*, own_ttft_s: float, promised_ttft_s: float) -> bool:
    return own_ttft_s > REFUSE_FACTOR * promised_ttft_s + REFUSE_SLACK_S
