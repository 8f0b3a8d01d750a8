"""What the document says of a route beyond its path: its body, what it asks in the query, what it answers.

A route without a line here is in the document all the same, with what its handler says of itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparewatt.gateway.accounts.keys import KeyChange, NewKey
from sparewatt.gateway.accounts.me import AccountChange
from sparewatt.gateway.accounts.operators import RoleChange
from sparewatt.gateway.accounts.people import LoginBody, PasswordBody, ResetBody, ResetRequestBody, SignupBody
from sparewatt.gateway.accounts.tokens import NewToken
from sparewatt.gateway.money.amounts import AmountBody
from sparewatt.gateway.money.credits import DepositBody, GrantBody

_SPAN = ("from", "to")
_PAGE = (*_SPAN, "limit", "after", "format")


@dataclass(frozen=True, slots=True)
class Said:
    body: type | str | None = None
    """A type of ours, or the name of a shape."""
    reply: str | None = None
    """The name of a shape."""
    query: tuple[str, ...] = ()
    streams: bool = False
    is_open: bool = False
    """Whether it needs neither a key nor a session."""
    summary: str | None = None


TABLE: dict[str, Said] = {
    "POST /v1/chat/completions": Said(
        "ChatRequest", "Completion", streams=True, summary="Answer a chat, whole or as a stream."
    ),
    "POST /v1/completions": Said(
        "CompletionRequest", "Completion", streams=True, summary="Go on from a prompt, whole or as a stream."
    ),
    "POST /v1/embeddings": Said("EmbeddingRequest", "Embeddings", summary="Turn texts into vectors."),
    "POST /v1/responses": Said("ResponseRequest", "Response", streams=True),
    "POST /v1/responses/compact": Said("ResponseRequest"),
    "POST /v1/responses/input_tokens": Said("ResponseRequest"),
    "GET /v1/responses/{response_id}": Said(
        reply="Response", query=("stream", "starting_after"), streams=True, summary="A stored response, by its id."
    ),
    "DELETE /v1/responses/{response_id}": Said(summary="Delete a stored response; one that is being written stops."),
    "GET /v1/responses/{response_id}/input_items": Said(
        query=("limit", "order", "after"), summary="What a stored response was made from, in pages."
    ),
    "POST /v1/responses/{response_id}/cancel": Said(reply="Response", summary="Stop a response that is being written."),
    "GET /v1/models": Said(reply="Models", summary="What can be asked for right now."),
    "GET /v1/models/{model}": Said(reply="Model", summary="One model, by its id."),
    "GET /v1/nodes": Said(query=("region", "gpu", "gpu_class", "sort"), summary="The nodes, by any field of a policy."),
    "GET /v1/nodes/{node_id}": Said(summary="One node."),
    "GET /v1/nodes/{node_id}/why": Said(query=("last",), summary="Why a node gets jobs, or does not."),
    "GET /v1/nodes/{node_id}/history": Said(summary="A node's days: how long it was up, its jobs."),
    "GET /v1/nodes/{node_id}/reputation": Said(summary="How far a node can be relied on; to its owner, why."),
    "GET /v1/feed": Said(streams=True, is_open=True, summary="The network as it changes, as server-sent events."),
    "GET /v1/network": Said(is_open=True, summary="The network in numbers: totals, regions, classes of GPU, models."),
    "GET /v1/pulse": Said(summary="What this gateway does right now, in counts. Operators only."),
    "GET /v1/history": Said(
        query=("kind", "span", "name", "format"), is_open=True, summary="Lines over a day or a month."
    ),
    "POST /v1/match": Said("MatchQuestion"),
    "GET /v1/matches": Said(query=("limit",)),
    "POST /v1/signup": Said(SignupBody, is_open=True),
    "POST /v1/login": Said(LoginBody, is_open=True),
    "POST /v1/password": Said(PasswordBody),
    "POST /v1/password/reset-request": Said(ResetRequestBody, is_open=True),
    "POST /v1/password/reset": Said(ResetBody, is_open=True),
    "PATCH /v1/me": Said(AccountChange),
    "GET /v1/accounts": Said(query=("after",)),
    "PATCH /v1/accounts/{account}": Said(RoleChange),
    "POST /v1/keys": Said(NewKey),
    "PATCH /v1/keys/{key_id}": Said(KeyChange),
    "POST /v1/join-tokens": Said(NewToken),
    "GET /v1/credits": Said(query=("account",)),
    "POST /v1/credits/grant": Said(GrantBody),
    "POST /v1/credits/deposit": Said(DepositBody),
    "GET /v1/usage": Said(query=(*_PAGE, "by", "key")),
    "GET /v1/generation": Said(query=("id",)),
    "GET /v1/earnings": Said(query=(*_PAGE, "by", "node")),
    "GET /v1/earnings/summary": Said(query=_SPAN),
    "GET /v1/payouts/batches": Said(query=("limit", "after"), is_open=True, summary="Payout batches and their roots."),
    "GET /v1/payouts/batches/{epoch}": Said(
        query=("limit", "after"), is_open=True, summary="One payout batch, with a page of its leaves."
    ),
    "GET /v1/payouts/batches/{epoch}/proof": Said(query=("address",)),
    "POST /v1/treasury/fund": Said(AmountBody),
    "GET /": Said(is_open=True, summary="The dashboard."),
    "GET /{page}": Said(is_open=True, summary="A page of the dashboard, to browsers."),
    "GET /assets/{name}": Said(is_open=True, summary="A file of the dashboard."),
    "GET /dl": Said(is_open=True, summary="What this gateway hands out: its own wheel."),
    "GET /dl/{name}": Said(is_open=True, summary="A file that this gateway hands out."),
    "GET /healthz": Said(is_open=True),
    "GET /readyz": Said(is_open=True),
    "GET /version": Said(is_open=True),
    "GET /openapi.json": Said(is_open=True),
    "GET /link/v1": Said(is_open=True, summary="A node's WebSocket. Clients have no use for it."),
}
