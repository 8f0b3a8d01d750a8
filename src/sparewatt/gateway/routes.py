"""Every route of the gateway, in one table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from aiohttp import web

from sparewatt.core.errors import NotFound
from sparewatt.gateway import chain, downloads
from sparewatt.gateway.accounts import keys, me, operators, people, tokens
from sparewatt.gateway.feeds import matches, network, nodes, pulse, status, stream, why
from sparewatt.gateway.history import calendar, reputation
from sparewatt.gateway.history import routes as history
from sparewatt.gateway.http import Handler, add_own_headers, answer_errors
from sparewatt.gateway.money import books, earnings, payouts, usage
from sparewatt.gateway.money import credits as credit
from sparewatt.gateway.openai import chat, completions, embeddings, models
from sparewatt.gateway.openai.call import Call
from sparewatt.gateway.openai.responses import compact, create, stored
from sparewatt.gateway.openapi import document
from sparewatt.gateway.proxies import refuse_detours
from sparewatt.gateway.request_log import remember_reply, request_log
from sparewatt.gateway.services import SERVICES, Services
from sparewatt.gateway.web import pages
from sparewatt.protocol.link import LINK_PATH

HOT: Mapping[str, Callable[[bytes], Call]] = {
    chat.PATH: chat.read_chat,
    completions.PATH: completions.read_completion_request,
    embeddings.PATH: embeddings.read_embedding_request,
}
"""What models answer, and how each reads its bodies: `front/` serves these without a framework."""


def _stand_in(path: str, read: Callable[[bytes], Call]) -> Handler:
    """In the router for a path of `HOT`, so that it is documented and other methods are refused. Not reached."""

    async def stand_in(request: web.Request) -> web.StreamResponse:
        raise NotFound(f"There is no {request.path[:200]!r} here.")

    stand_in.__module__, stand_in.__name__ = read.__module__, path.removeprefix("/v1/").replace("/", "_")
    stand_in.__doc__ = None
    return stand_in


ROUTES: tuple[web.RouteDef, ...] = (
    *(web.post(path, _stand_in(path, read)) for path, read in HOT.items()),
    web.post("/v1/responses", create.create_response),
    web.post("/v1/responses/compact", compact.compact_response),
    web.post("/v1/responses/input_tokens", compact.count_input_tokens),
    web.get("/v1/responses/{response_id}", stored.show_response),
    web.delete("/v1/responses/{response_id}", stored.delete_response),
    web.get("/v1/responses/{response_id}/input_items", stored.list_input_items),
    web.post("/v1/responses/{response_id}/cancel", stored.cancel_response),
    web.get("/v1/models", models.list_models),
    web.get("/v1/models/{model:.+}", models.show_model),
    web.get("/v1/nodes", nodes.list_nodes),
    web.get("/v1/nodes/{node_id}", nodes.show_node),
    web.get("/v1/nodes/{node_id}/why", why.show_why),
    web.get("/v1/nodes/{node_id}/history", calendar.show_calendar),
    web.get("/v1/nodes/{node_id}/reputation", reputation.show_reputation),
    web.get("/v1/feed", stream.watch),
    web.get("/v1/network", network.show_network),
    web.get("/v1/pulse", pulse.show_pulse),
    web.get("/v1/history", history.show_history),
    web.post("/v1/match", matches.dry_run),
    web.get("/v1/matches", matches.list_matches),
    web.get("/v1/matches/{match_id}", matches.show_match),
    web.post("/v1/signup", people.sign_up),
    web.post("/v1/login", people.log_in),
    web.post("/v1/logout", people.log_out),
    web.post("/v1/password", people.change_password),
    web.post("/v1/password/reset-request", people.request_reset),
    web.post("/v1/password/reset", people.reset_password),
    web.get("/v1/me", me.show_me),
    web.patch("/v1/me", me.change_me),
    web.post("/v1/me/close", me.close_me),
    web.get("/v1/accounts", operators.list_accounts),
    web.get("/v1/accounts/{account}", operators.show_account),
    web.patch("/v1/accounts/{account}", operators.change_role),
    web.post("/v1/accounts/{account}/close", operators.close_account),
    web.post("/v1/accounts/{account}/reset-password", operators.make_reset),
    web.post("/v1/invites", operators.make_invite),
    web.post("/v1/keys", keys.create_key),
    web.get("/v1/keys", keys.list_keys),
    web.patch("/v1/keys/{key_id}", keys.limit_key),
    web.delete("/v1/keys/{key_id}", keys.revoke_key),
    web.post("/v1/join-tokens", tokens.create_token),
    web.get("/v1/credits", credit.show_credits),
    web.post("/v1/credits/grant", credit.grant_credits),
    web.post("/v1/credits/deposit", credit.deposit_credits),
    web.get("/v1/key", credit.show_key),
    web.get("/v1/usage", usage.show_usage),
    web.get("/v1/generation", usage.show_generation),
    web.get("/v1/earnings", earnings.show_earnings),
    web.get("/v1/earnings/summary", earnings.show_summary),
    web.get("/v1/payouts", payouts.list_payouts),
    web.post("/v1/payouts/claim", payouts.claim),
    web.get("/v1/payouts/batches", payouts.list_batches),
    web.post("/v1/payouts/batches", payouts.make_batch),
    web.get("/v1/payouts/batches/{epoch}", payouts.show_batch),
    web.get("/v1/payouts/batches/{epoch}/proof", payouts.show_proof),
    web.get("/v1/treasury", credit.show_treasury),
    web.post("/v1/treasury/fund", credit.fund_treasury),
    web.get("/v1/ledger/audit", books.audit),
    web.post("/v1/ledger/rebuild", books.rebuild),
    web.get("/v1/chain", chain.show_chain),
    web.post("/v1/chain/rpc", chain.pass_on),
    web.get("/openapi.json", document.show_document),
    web.get("/", pages.show_home),
    web.get("/{page:" + pages.PAGES + "}", pages.show_page),
    web.get("/assets/{name}", pages.show_asset),
    web.get("/healthz", status.healthz),
    web.get("/readyz", status.readyz),
    web.get("/version", status.version),
    web.get(downloads.DOWNLOADS, downloads.list_downloads),
    web.get(f"{downloads.DOWNLOADS}/{{name}}", downloads.download),
)
"""All but the links', which end at a desk of their own."""


def make_app(services: Services) -> web.Application:
    settings = services.settings
    app = web.Application(
        middlewares=[*request_log(settings), answer_errors, *refuse_detours(settings), pages.show_missing]
    )
    app[SERVICES] = services
    app[chain.ALLOWANCE] = chain.Allowance(services.clock, services.place.count)
    app[downloads.OWN] = downloads.Downloads()
    app[stream.AUDIENCE] = Counter()
    app[history.LINES] = history.Lines()
    app[pages.BUNDLE] = pages.find_bundle()
    app.on_response_prepare.append(add_own_headers)
    if settings.request_log:
        app.on_response_prepare.append(remember_reply)
    app.add_routes([*ROUTES, web.get(LINK_PATH, services.desk.handle)])
    app[document.DOCUMENT] = document.make_document(app)
    return app


def make_link_app(services: Services) -> web.Application:
    """What stands at a process's own link port: the way in for nodes, and nothing else."""
    app = web.Application(middlewares=[answer_errors])
    app[SERVICES] = services
    app.on_response_prepare.append(add_own_headers)
    app.add_routes([web.get(LINK_PATH, services.desk.handle)])
    return app
