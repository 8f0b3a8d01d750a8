"""What a finished job says: how it ended for its client, and what each attempt says about its node. Pure."""

from __future__ import annotations

from http import HTTPStatus

from sparewatt.core.errors import NoEligibleNode
from sparewatt.inference.dispatch.model import AttemptRecord, MatchRecord, Outcome
from sparewatt.trust.reputation import AttemptResult

ENDS = ("done", "failed", "rejected", "cancelled")
"""How a job can end for its client."""
_CLIENT_ERRORS = range(400, 500)
_JOB_TOO_LONG = "the job took longer"
_DONE = Outcome.DONE
_FAILURES = (Outcome.FAILED, Outcome.TIMED_OUT)
_BY_CODE = {
    result.value: result
    for result in (
        AttemptResult.LINK_LOST,
        AttemptResult.BACKEND_UNREACHABLE,
        AttemptResult.BACKEND_BROKE,
        AttemptResult.BACKEND_TIMEOUT,
    )
}


def end_of(record: MatchRecord) -> str:
    """One of `ENDS`: done, cancelled by its client, failed by us, or rejected because it asked for what cannot be."""
    if record.outcome is _DONE:
        return "done"
    if record.outcome is Outcome.CANCELLED:
        return "cancelled"
    return "failed" if is_our_failure(record) else "rejected"


def is_our_failure(record: MatchRecord) -> bool:
    """Not one where the request itself was at fault, or its own policy let nobody through."""
    at_fault = record.error_status is not None and record.error_status < HTTPStatus.INTERNAL_SERVER_ERROR
    return record.outcome in _FAILURES and not at_fault and not _is_ruled_out(record)


def _is_ruled_out(record: MatchRecord) -> bool:
    """There were nodes, and the request's policy allowed none of them. Where none has the memory, it is our lack."""
    return record.error_code == NoEligibleNode.code and any(record.decision.rejected_by_policy.values())


def result_of(attempt: AttemptRecord, record: MatchRecord) -> AttemptResult | None:
    """None where it says nothing: refused in time, cancelled, a bad request, or longer than any job may take."""
    if attempt.outcome is _DONE and attempt.reason is None:  # nearly always
        return AttemptResult.DONE
    reason = attempt.reason or ""
    has_status = reason.startswith("status ")
    match attempt.outcome:
        case Outcome.DONE:
            return None if has_status else AttemptResult.DONE
        case Outcome.TIMED_OUT:
            return None if reason.startswith(_JOB_TOO_LONG) else AttemptResult.TIMED_OUT
        case Outcome.FAILED if has_status:
            return None if record.error_status in _CLIENT_ERRORS else AttemptResult.BACKEND_ERROR
        case Outcome.FAILED:
            return _BY_CODE.get(reason.partition(":")[0], AttemptResult.PROTOCOL)
        case _:
            return None


def cascade_reason(attempt: AttemptRecord, result: AttemptResult | None) -> str:
    """Why the job went on to another node: one of a few words, never the node's own."""
    if attempt.outcome is Outcome.REFUSED:
        return "refused"
    return "other" if result is None or result is AttemptResult.DONE else result.value
