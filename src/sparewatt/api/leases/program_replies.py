"""What a renter is shown of a lease's program, and the warning that it is paid for and does not run. Pure."""

from __future__ import annotations

import time

from sparewatt.leasing.running.programs import ProviderWord
from sparewatt.market.chain_records import LeaseRecord, LeaseState
from sparewatt.protocol.api.leases import LeaseProgram
from sparewatt.protocol.link.lease_tasks import ProgramPhase

_RUNNING = frozenset({ProgramPhase.RUNNING, ProgramPhase.RESTARTING, ProgramPhase.EXITED})
"""It ran, at least: what the renter's own program does then is no failure of the machine."""


def write_program(lease: LeaseRecord, word: ProviderWord, *, lease_id: str) -> LeaseProgram | None:
    """`lease_id`: as the renter calls it. None while there is nothing to say."""
    report, details = word.report, word.details
    if report is None and details is None:
        return None
    return LeaseProgram(
        phase=None if report is None else report.phase.value,
        since=None if report is None else report.since,
        trouble=None if report is None else report.trouble,
        exit_code=None if report is None else report.exit_code,
        restarts=0 if report is None else report.restarts,
        confirmed_running=None if details is None else details.started,
        warning=_warning(lease, word, lease_id=lease_id),
    )


def _warning(lease: LeaseRecord, word: ProviderWord, *, lease_id: str) -> str | None:
    """Of a lease whose meter runs. The time is the chain's: a node's own would be the provider's word, too."""
    report, details = word.report, word.details
    if lease.state is not LeaseState.ACTIVE:
        return None
    does_run = report.phase in _RUNNING if report is not None else details is None or details.started
    if does_run:
        return None
    signed = None if details is None or details.started else details.why
    why = (report.trouble if report is not None else None) or signed or "no reason is given"
    phase = "held" if report is None else report.phase.value
    paid_since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(lease.running_since))
    return (
        f"You pay for it since {paid_since}, and it does not run: {phase}, {why} (its provider's words). "
        f"'sparewatt lease close {lease_id}' ends it and gives the rest of the deposit back."
    )
