"""POST /v1/match: which node would serve a job, and why. Nothing is sent, held or stored."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import msgspec
from aiohttp import web
from msgspec import structs

from sparewatt.api.endpoint import Reply, post
from sparewatt.core.clock import Clock
from sparewatt.core.ids import AccountId, ModelId, NodeId
from sparewatt.core.money import Nano
from sparewatt.edge.auth import Authenticator
from sparewatt.edge.bodies import read_json
from sparewatt.edge.middleware import context_of
from sparewatt.inference.capabilities import RequiredCapabilities
from sparewatt.inference.dispatch.model import Gate
from sparewatt.inference.dispatch.node_selection import no_match_error
from sparewatt.inference.matcher.model import Decision, MatchJob
from sparewatt.inference.routing import Routing
from sparewatt.inference.service import InferenceService
from sparewatt.ledger.chart import promo_of
from sparewatt.policy.formatter import to_object
from sparewatt.policy.parser import HEADER as ROUTE_HEADER
from sparewatt.protocol.api.matches import DryRunExplanation, DryRunRequest
from sparewatt.telemetry.explanations import Explanations


class Balances(Protocol):
    """Implemented by `Books`."""

    async def balances(self, accounts: Sequence[str]) -> Mapping[str, Nano]: ...


class DryRunEndpoints:
    def __init__(
        self,
        *,
        auth: Authenticator,
        inference: InferenceService,
        explanations: Explanations,
        books: Balances | None,
        clock: Clock,
    ) -> None:
        """`books`: None on a network without books."""
        self._auth = auth
        self._inference = inference
        self._explanations = explanations
        self._books = books
        self._clock = clock

    @post("/v1/match", body=DryRunRequest)
    async def explain_dry_run(self, request: web.Request) -> Reply[DryRunExplanation]:
        """Show which node would serve a job, or why none can. Nothing is sent and nothing is stored."""
        context, inference = context_of(request), self._inference
        principal = await self._auth.authenticate(context, "inference")
        body = await read_json(request, DryRunRequest)
        routing = inference.route(
            body.model, principal, header=context.headers.get(ROUTE_HEADER), provider=bytes(body.provider)
        )
        job = self._job_of(body, routing)
        price = inference.price_cap(routing.policy, job.model)
        owned = inference.table.nodes_of(principal.account_id)
        payer = await promo_payer(principal.account_id, owned=owned, books=self._books)
        needs = RequiredCapabilities(frozenset(body.capabilities), declared=bool(routing.policy.require_parameters))
        gate = inference.gate(routing.policy, job.model, price=price, payer=payer, needs=needs)
        ranking = inference.ranking_named(body.policy)
        decision = inference.dispatcher.dry_run(job, ranking=ranking, gate=gate)
        return Reply(self._explain(decision, routing, gate), headers=routing.headers())

    def _job_of(self, body: DryRunRequest, routing: Routing) -> MatchJob:
        model = ModelId(routing.model)
        typical = self._inference.table.typical_output_tokens(model)
        return MatchJob(
            id=self._inference.new_match_id(),
            model=model,
            prompt_tokens=body.prompt_tokens,
            output_tokens=min(body.max_tokens or typical, typical),
            prompt_tokens_floor=body.prompt_tokens,
            preference=routing.preference,
        )

    def _explain(self, decision: Decision, routing: Routing, gate: Gate | None) -> DryRunExplanation:
        explanation = structs.asdict(self._explanations.explain_decision(decision))
        has_match = decision.best is not None
        if not has_match and gate is not None:
            explanation["nearest_relaxations"] += gate.relaxations()
        error = None if has_match else no_match_error(decision, self._inference.table, gate)
        return DryRunExplanation(
            **explanation,
            why_nobody=msgspec.UNSET if error is None else error.message,
            policy_effective=to_object(routing.policy),
            created_at=self._clock.unix_s(),
        )


async def promo_payer(account: AccountId, *, owned: Collection[NodeId], books: Balances | None) -> AccountId | None:
    """The account, if free credits would pay for the job: then the nodes that it owns may not serve it.

    A request learns that from its hold. A dry run holds nothing, and looks at the balance instead.
    """
    if books is None or not owned:
        return None
    name = promo_of(account)
    return account if (await books.balances([name]))[name] > 0 else None
