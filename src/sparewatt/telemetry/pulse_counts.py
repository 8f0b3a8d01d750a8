"""Counts since the process started, for an operator's pulse; and their sum over all processes of a gateway.

A process that does not answer is left out, and one that restarted counts from zero. In both cases `Counts.instance`
differs, so that a client does not compute a rate from two sums that cannot be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, TypeVar

from msgspec import structs

from sparewatt.cluster.peer_rpc import PeerClient, PeerHandler
from sparewatt.cluster.questions import COUNTS, Counts, CountsRequest, ModelCounts, NodeCounts
from sparewatt.core.ids import NodeId
from sparewatt.core.limits import METRICS_MODELS_MAX, PULSE_NODES_MAX
from sparewatt.inference.admission.service import AdmissionControl
from sparewatt.inference.dispatch.dispatcher import Dispatcher
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.telemetry.job_counter import JobCounter, ModelTotals

T = TypeVar("T")
_NO_JOBS = ModelTotals()


@dataclass(slots=True, kw_only=True)
class PulseCounts:
    dispatcher: Dispatcher
    admission: AdmissionControl
    table: NodeTable
    jobs: JobCounter
    peers: PeerClient
    instance: str
    """Names this process until it restarts."""

    def handlers(self) -> list[PeerHandler[Any, Any]]:
        return [PeerHandler(COUNTS, self._answer_counts)]

    async def count_all(self, nodes: Sequence[str]) -> Counts:
        """Of all processes of this gateway. `nodes`: ids of the nodes whose work is counted as well."""
        replies = await self.peers.ask_all(COUNTS, CountsRequest(list(nodes)))
        return sum_of([self.count_here(nodes), *replies])

    def count_here(self, nodes: Iterable[str]) -> Counts:
        """Of this process. Tokens of running jobs count, so that a long answer does not look like a pause."""
        tokens_by_model, tokens_by_node = self.dispatcher.tokens_in_progress()
        waiting = self.admission.waiting_by_model()
        return Counts(
            instance=self.instance,
            running=self.dispatcher.running,
            waiting=self.admission.waiting,
            tokens_written=self.dispatcher.tokens,
            errors=dict(self.jobs.errors),
            models={
                model: counts_of(
                    self.jobs.totals.models.get(model, _NO_JOBS),
                    running=self.table.in_flight(model),
                    waiting=waiting.get(model, 0),
                    tokens_in_progress=tokens_by_model[model],
                )
                for model in self._requested_models(waiting)
            },
            nodes={
                row.id: NodeCounts(
                    tokens=self.jobs.totals.node_tokens.get(row.id, 0) + tokens_by_node[row.id],
                    done=row.jobs_done,
                    failed=row.jobs_failed,
                )
                for node in nodes
                if (row := self.table.get(NodeId(node))) is not None
            },
        )

    def _requested_models(self, waiting: Iterable[str]) -> list[str]:
        """Models with finished jobs, and a bounded number with jobs now: clients can make up names."""
        now = [*self.table.models_in_flight(), *waiting]
        return list(dict.fromkeys([*self.jobs.totals.models, *now[:METRICS_MODELS_MAX]]))

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
    instance = "+".join(sorted(counts.instance for counts in processes))
    return structs.replace(reduce(_add, processes), instance=instance)


def _add(one: Counts, other: Counts) -> Counts:
    return Counts(
        instance="",
        running=one.running + other.running,
        waiting=one.waiting + other.waiting,
        tokens_written=one.tokens_written + other.tokens_written,
        errors=_merge(one.errors, other.errors, add),
        models=_merge(one.models, other.models, _add_models),
        nodes=_merge(one.nodes, other.nodes, _add_nodes),
    )


def _add_models(one: ModelCounts, other: ModelCounts) -> ModelCounts:
    return ModelCounts(
        running=one.running + other.running,
        waiting=one.waiting + other.waiting,
        requests=_merge(one.requests, other.requests, add),
        prompt_tokens=one.prompt_tokens + other.prompt_tokens,
        completion_tokens=one.completion_tokens + other.completion_tokens,
        first_token_counts=list(map(add, one.first_token_counts, other.first_token_counts)),
    )


def _add_nodes(one: NodeCounts, other: NodeCounts) -> NodeCounts:
    return NodeCounts(tokens=one.tokens + other.tokens, done=one.done + other.done, failed=one.failed + other.failed)


def _merge(one: dict[str, T], other: dict[str, T], add_values: Callable[[T, T], T]) -> dict[str, T]:
    return one | {name: add_values(one[name], value) if name in one else value for name, value in other.items()}
