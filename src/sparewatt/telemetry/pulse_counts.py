"""Counts since the process started, for an operator's pulse; and their sum over all processes of a gateway.

A process that does not answer is left out, and one that restarted counts from zero. In both cases `Counts.instance`
differs, so that a client does not compute a rate from two sums that cannot be compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from sparewatt.cluster.peer_client import PeerClient
from sparewatt.cluster.peer_server import PeerHandler
from sparewatt.cluster.questions import COUNTS, Counts, CountsRequest, ModelCounts, NodeCounts
from sparewatt.core.ids import NodeId
from sparewatt.core.limits import METRICS_MODELS_MAX, PULSE_NODES_MAX
from sparewatt.inference.admission.service import AdmissionControl
from sparewatt.inference.dispatch.dispatcher import Dispatcher
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.telemetry.job_counter import JobCounter
from sparewatt.telemetry.job_totals import ModelTotals

_NO_JOBS = ModelTotals()


class PulseCounts:
    def __init__(
        self,
        *,
        dispatcher: Dispatcher,
        admission: AdmissionControl,
        table: NodeTable,
        jobs: JobCounter,
        peers: PeerClient,
        instance: str,
    ) -> None:
        """`instance`: names this process until it restarts."""
        self._dispatcher = dispatcher
        self._admission = admission
        self._table = table
        self._jobs = jobs
        self._peers = peers
        self._instance = instance

    def handlers(self) -> list[PeerHandler[Any, Any]]:
        return [PeerHandler(COUNTS, self._answer_counts)]

    async def count_all(self, nodes: Sequence[str]) -> Counts:
        """Of all processes of this gateway. `nodes`: ids of the nodes whose work is counted as well."""
        replies = await self._peers.ask_all(COUNTS, CountsRequest(list(nodes)))
        return sum_of([self.count_here(nodes), *replies])

    def count_here(self, nodes: Iterable[str]) -> Counts:
        """Of this process. Tokens of running jobs count, so that a long answer does not look like a pause."""
        tokens_by_model, tokens_by_node = self._dispatcher.tokens_in_progress()
        waiting = self._admission.waiting_by_model()
        return Counts(
            instance=self._instance,
            running=self._dispatcher.running,
            waiting=self._admission.waiting,
            tokens_written=self._dispatcher.tokens,
            errors=dict(self._jobs.errors),
            models={
                model: counts_of(
                    self._jobs.totals.models.get(model, _NO_JOBS),
                    running=self._table.in_flight(model),
                    waiting=waiting.get(model, 0),
                    tokens_in_progress=tokens_by_model[model],
                )
                for model in self._requested_models(waiting)
            },
            nodes={
                row.id: NodeCounts(
                    tokens=self._jobs.totals.node_tokens.get(row.id, 0) + tokens_by_node[row.id],
                    done=row.jobs_done,
                    failed=row.jobs_failed,
                )
                for node in nodes
                if (row := self._table.get(NodeId(node))) is not None
            },
        )

    def _requested_models(self, waiting: Iterable[str]) -> list[str]:
        """Models with finished jobs, and a bounded number with jobs now: clients can make up any name."""
        now = [*self._table.models_in_flight(), *waiting]
        return list(dict.fromkeys([*self._jobs.totals.models, *now[:METRICS_MODELS_MAX]]))

    async def _answer_counts(self, request: CountsRequest) -> Counts:
        return self.count_here(request.nodes[:PULSE_NODES_MAX])


def counts_of(totals: ModelTotals, *, running: int = 0, waiting: int = 0, tokens_in_progress: int = 0) -> ModelCounts:
    return ModelCounts(
        running=running,
        waiting=waiting,
        requests=dict(totals.ends),
        prompt_tokens=totals.prompt_tokens,
        completion_tokens=totals.completion_tokens + tokens_in_progress,
        first_token_counts=list(totals.first_token.counts),
    )


NO_COUNTS = counts_of(_NO_JOBS)
"""Of a model that no client requested."""


def sum_of(processes: Sequence[Counts]) -> Counts:
    if len(processes) == 1:
        return processes[0]
    models = dict.fromkeys(model for counts in processes for model in counts.models)
    nodes = dict.fromkeys(node for counts in processes for node in counts.nodes)
    return Counts(
        instance="+".join(sorted(counts.instance for counts in processes)),
        running=sum(counts.running for counts in processes),
        waiting=sum(counts.waiting for counts in processes),
        tokens_written=sum(counts.tokens_written for counts in processes),
        errors=_sum_by_name(counts.errors for counts in processes),
        models={
            name: _sum_of_model([counts.models[name] for counts in processes if name in counts.models])
            for name in models
        },
        nodes={
            name: _sum_of_node([counts.nodes[name] for counts in processes if name in counts.nodes]) for name in nodes
        },
    )


def _sum_of_model(processes: Sequence[ModelCounts]) -> ModelCounts:
    return ModelCounts(
        running=sum(counts.running for counts in processes),
        waiting=sum(counts.waiting for counts in processes),
        requests=_sum_by_name(counts.requests for counts in processes),
        prompt_tokens=sum(counts.prompt_tokens for counts in processes),
        completion_tokens=sum(counts.completion_tokens for counts in processes),
        first_token_counts=[
            sum(bucket) for bucket in zip(*(counts.first_token_counts for counts in processes), strict=True)
        ],
    )


def _sum_of_node(processes: Sequence[NodeCounts]) -> NodeCounts:
    return NodeCounts(
        tokens=sum(counts.tokens for counts in processes),
        done=sum(counts.done for counts in processes),
        failed=sum(counts.failed for counts in processes),
    )


def _sum_by_name(counted: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for counts in counted:
        total.update(counts)
    return dict(total)
