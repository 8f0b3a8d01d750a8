"""GET /v1/nodes/{node_id}/why: how a node fared in the last matches, for its owner and for operators.

Each process of this gateway knows its own matches only, so each looks back at its share of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from aiohttp import web

from sparewatt.accounts.principal import Principal, require_scope
from sparewatt.api.endpoint import endpoint
from sparewatt.cluster.peer_rpc import PeerClient, PeerHandler
from sparewatt.cluster.questions import WHY, WhyReply, WhyRequest
from sparewatt.core.errors import NotOwner
from sparewatt.core.ids import AccountId, ModelId, NodeId
from sparewatt.core.limits import MATCHES_LOOKED_BACK_MAX
from sparewatt.edge.bodies import whole_number
from sparewatt.inference.dispatch.model import MatchRecord, Outcome
from sparewatt.inference.dispatch.why import WhyReport, look_back, sentences
from sparewatt.inference.fleet.find_node import find_node
from sparewatt.inference.fleet.unmet_demand import UnmetDemand
from sparewatt.inference.matcher.model import Rejection
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.protocol.api.nodes import MatchLosses, ModelDemand, NodeMatchReport
from sparewatt.protocol.link.node_report import ModelReport

LOOKED_BACK_DEFAULT = 1_000


class RecentMatches(Protocol):
    """The last matches of this process, the latest first. Implemented by `Dispatcher`."""

    def last_records(self, count: int) -> Iterable[MatchRecord]: ...


@dataclass(slots=True, kw_only=True)
class WhyEndpoints:
    table: NodeTable
    matches: RecentMatches
    owners: Mapping[NodeId, AccountId]
    joined_unix_s: Mapping[NodeId, float]
    """When nodes joined that are new since the start: earlier matches do not concern them."""
    peers: PeerClient
    process_count: int
    """Of this gateway."""
    demand: UnmetDemand
    price_notice: Callable[[ModelReport], str | None] = lambda _: None
    """What the owner of a node should know about its price for a model, if anything."""

    @endpoint("GET /v1/nodes/{node_id}/why", access="identified", query=("last",))
    async def show_why(self, request: web.Request, principal: Principal) -> NodeMatchReport:
        """Explain why a node gets jobs, or does not."""
        if not principal.is_operator:
            require_scope(principal, "node")
        count = whole_number(request, "last", default=LOOKED_BACK_DEFAULT, most=MATCHES_LOOKED_BACK_MAX)
        row = find_node(self.table, request.match_info["node_id"])
        if not principal.is_operator and self.owners.get(row.id) != principal.account_id:
            raise NotOwner("This node belongs to another account. Only its owner may ask why it gets no jobs.")
        report = await self._look_back_everywhere(row, count=count)
        report.wanted = [each for each in report.wanted if not self.table.capacity.nodes(ModelId(each.name))]
        notices = (self.price_notice(model) for model in row.models.values())
        return match_report_of(report, row, price_notices=[notice for notice in notices if notice is not None])

    def handlers(self) -> list[PeerHandler[Any, Any]]:
        return [PeerHandler(WHY, self.answer_why)]

    async def answer_why(self, question: WhyRequest) -> WhyReply:
        """This process's share of the matches."""
        report = self._look_back(NodeId(question.node), count=question.count, since_unix_s=question.since_unix_s)
        return _peer_reply_of(report)

    async def _look_back_everywhere(self, row: NodeRow, *, count: int) -> WhyReport:
        since_unix_s, share = self.joined_unix_s.get(row.id, 0.0), math.ceil(count / self.process_count)
        report = self._look_back(row.id, count=share, since_unix_s=since_unix_s)
        for reply in await self.peers.ask_all(WHY, WhyRequest(row.id, share, since_unix_s)):
            report.include(_report_of(reply))
        return report

    def _look_back(self, node_id: NodeId, *, count: int, since_unix_s: float) -> WhyReport:
        row = self.table.get(node_id)
        models = row.models if row is not None else ()
        report = look_back(node_id, self.matches.last_records(count), models=models, since_unix_s=since_unix_s)
        report.wanted = self.demand.wanted()
        return report


def match_report_of(report: WhyReport, row: NodeRow, *, price_notices: Sequence[str] = ()) -> NodeMatchReport:
    return NodeMatchReport(
        node=row.id,
        name=row.specs.name,
        matches=report.matches,
        chosen=report.chosen,
        outcomes={outcome.value: n for outcome, n in report.sent.most_common()},
        lost=MatchLosses(
            count=report.lost.count,
            mean_gap_s=None if report.lost.mean_gap_s is None else round(report.lost.mean_gap_s, 6),
            worst_parts_s={name: round(mean_s, 6) for name, mean_s in report.lost.worst_parts()},
        ),
        rejected={reason.value: n for reason, n in report.rejected.most_common()},
        ruled_out=report.ruled_out,
        unlisted=report.unlisted,
        wanted=[ModelDemand(model=each.name, requests=each.requests, keys=each.keys) for each in report.wanted],
        sentences=[*sentences(report), *price_notices],
    )


def _peer_reply_of(report: WhyReport) -> WhyReply:
    return WhyReply(
        matches=report.matches,
        sent={outcome.value: n for outcome, n in report.sent.items()},
        rejected={reason.value: n for reason, n in report.rejected.items()},
        lost=report.lost,
        ruled_out=report.ruled_out,
        unlisted=report.unlisted,
        wanted=report.wanted,
    )


def _report_of(reply: WhyReply) -> WhyReport:
    return WhyReport(
        matches=reply.matches,
        sent=Counter({Outcome(name): n for name, n in reply.sent.items()}),
        lost=reply.lost,
        rejected=Counter({Rejection(name): n for name, n in reply.rejected.items()}),
        ruled_out=reply.ruled_out,
        unlisted=reply.unlisted,
        wanted=reply.wanted,
    )
