"""Every route of the gateway, in one table."""

from __future__ import annotations

from aiohttp import web

from sparewatt.gateway import chain
from sparewatt.gateway.accounts import keys, tokens
from sparewatt.gateway.feeds import matches, nodes, status, why
from sparewatt.gateway.http import add_request_id, answer_errors
from sparewatt.gateway.openai import chat, models
from sparewatt.gateway.services import SERVICES, Services
from sparewatt.protocol.link import LINK_PATH


def make_app(services: Services) -> web.Application:
    app = web.Application(middlewares=[answer_errors])
    app[SERVICES] = services
    app[chain.ALLOWANCE] = chain.Allowance(services.clock)
    app.on_response_prepare.append(add_request_id)
    app.add_routes(
        [
            web.post("/v1/chat/completions", chat.chat_completions),
            web.get("/v1/models", models.list_models),
            web.get("/v1/models/{model:.+}", models.show_model),
            web.get("/v1/nodes", nodes.list_nodes),
            web.get("/v1/nodes/{node_id}", nodes.show_node),
            web.get("/v1/nodes/{node_id}/why", why.show_why),
            web.post("/v1/match", matches.dry_run),
            web.get("/v1/matches/{match_id}", matches.show_match),
            web.post("/v1/keys", keys.create_key),
            web.get("/v1/keys", keys.list_keys),
            web.delete("/v1/keys/{key_id}", keys.revoke_key),
            web.post("/v1/join-tokens", tokens.create_token),
            web.get("/v1/chain", chain.show_chain),
            web.post("/v1/chain/rpc", chain.pass_on),
            web.get("/", status.show_status),
            web.get("/healthz", status.healthz),
            web.get("/readyz", status.readyz),
            web.get("/version", status.version),
            web.get(LINK_PATH, services.desk.handle),
        ]
    )
    return app
