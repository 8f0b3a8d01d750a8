"""The page that Prometheus scrapes: `eigen_*` as the AVS node specification of EigenLayer has them, and our own. Pure.

Names and meanings of `eigen_*` are fixed outside; `avs_name` tells services of one operator apart. No other metric may
have that prefix.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sparewatt.protocol.api.validators import ValidatorStatus
from sparewatt.validator.rpc_meter import BOUNDS_S, MethodUse

METRICS_CONTENT_TYPE = "text/plain"
AVS_NAME = "sparewatt"
QUORUM = (("quorum_number", "0"), ("quorum_name", "stake"))
_AVS = (("avs_name", AVS_NAME),)

Labels = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class RpcUse:
    client_version: str
    """Of the chain's node, as it calls itself."""
    uses: Mapping[str, MethodUse]
    """By method."""


@dataclass(frozen=True, slots=True)
class PageMetric:
    name: str
    kind: str
    help: str


PERFORMANCE = PageMetric(
    "eigen_performance_score",
    "gauge",
    "0 to 100: the share of accepted certificates with its vote, of those in which it had weight; 0 while unhealthy",
)
FEES = PageMetric("eigen_fees_earned_total", "counter", "Fees earned; validators of this network are not paid yet")
STAKES = PageMetric("eigen_registered_stakes", "gauge", "Stake that weighs, in dollars")
SLASHED = PageMetric("eigen_slashing_status", "gauge", "1 if the operator has been slashed")
RPC_TOTAL = PageMetric("eigen_rpc_request_total", "counter", "JSON-RPC calls to the chain's node, by method")
RPC_SECONDS = PageMetric("eigen_rpc_request_duration_seconds", "histogram", "Duration of JSON-RPC calls, by method")
BLOCK = PageMetric("sparewatt_validator_block", "gauge", "The newest block that it has read")
OPEN_MATCHES = PageMetric("sparewatt_validator_open_matches", "gauge", "Matches that are running")
VOTES = PageMetric("sparewatt_validator_votes_total", "counter", "Votes cast in matches")
SEEN = PageMetric("sparewatt_validator_certificates_seen_total", "counter", "Certificates accepted on chain")
SIGNED = PageMetric("sparewatt_validator_certificates_signed_total", "counter", "Of those, with its vote")
SUBMITTED = PageMetric("sparewatt_validator_certificates_submitted_total", "counter", "Accepted by its transaction")
MISSED = PageMetric("sparewatt_validator_rounds_missed_total", "counter", "Rounds of its matches without its vote")
REFUSED = PageMetric("sparewatt_validator_messages_refused_total", "counter", "Messages of a match that it refused")
HEARD = PageMetric(
    "sparewatt_validator_heard_providers", "gauge", "Providers whose heartbeat came in the last three beats"
)
EPOCH = PageMetric("sparewatt_validator_snapshot_epoch", "gauge", "The newest epoch on chain")
PEERS_UP = PageMetric("sparewatt_validator_peers_reachable", "gauge", "Other validators that took its last message")


def metrics_page(status: ValidatorStatus, rpc: RpcUse, *, is_healthy: bool, score: float) -> bytes:
    plain: list[tuple[PageMetric, float, Labels]] = [
        (PERFORMANCE, score if is_healthy else 0.0, _AVS),
        (FEES, 0, (*_AVS, ("token", "USD"))),
        (STAKES, status.stake_uusd / 1e6, (*_AVS, *QUORUM)),
        (SLASHED, int(status.is_jailed), _AVS),
        (BLOCK, status.block_number, ()),
        (OPEN_MATCHES, status.open_matches, ()),
        (VOTES, status.votes_cast, ()),
        (SEEN, status.certificates_seen, ()),
        (SIGNED, status.certificates_signed, ()),
        (SUBMITTED, status.certificates_submitted, ()),
        (MISSED, status.rounds_missed, ()),
        (REFUSED, status.messages_refused, ()),
        (HEARD, status.heard_providers, ()),
        (EPOCH, status.snapshot_epoch, ()),
        (PEERS_UP, sum(peer.is_reachable for peer in status.peers), ()),
    ]
    lines: list[str] = []
    for metric, value, labels in plain:
        lines += [*_head(metric), _sample(metric.name, value, labels)]
    lines += _rpc_lines(rpc)
    return ("\n".join(lines) + "\n").encode()


def _rpc_lines(rpc: RpcUse) -> Iterable[str]:
    uses, version = rpc.uses, rpc.client_version or "unknown"
    yield from _head(RPC_TOTAL)
    for method, use in sorted(uses.items()):
        yield _sample(RPC_TOTAL.name, use.count, _rpc_labels(method, version))
    yield from _head(RPC_SECONDS)
    for method, use in sorted(uses.items()):
        labels, below = _rpc_labels(method, version), 0
        for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), use.counts, strict=True):
            below += count
            yield _sample(f"{RPC_SECONDS.name}_bucket", below, (*labels, ("le", bound)))
        yield _sample(f"{RPC_SECONDS.name}_sum", round(use.total_s, 6), labels)
        yield _sample(f"{RPC_SECONDS.name}_count", below, labels)


def _rpc_labels(method: str, version: str) -> Labels:
    return (*_AVS, ("method", method), ("client_version", version))


def _head(metric: PageMetric) -> tuple[str, str]:
    return f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"


def _sample(name: str, value: float, labels: Labels) -> str:
    inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
    return f"{name}{{{inside}}} {value!r}" if inside else f"{name} {value!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
