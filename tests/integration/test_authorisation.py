"""Who may do what, as one table: every route, by nobody, by another account, by the owner, by an operator.

A route without a row fails, and so does a row without a route: whoever adds one says who may use it.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass

import pytest

from sparewatt.api.endpoint import routes_of
from sparewatt.api.openapi.document import make_document
from sparewatt.gateway.routes import endpoint_groups, make_app
from tests.integration.asking import Reply, ask, chat_body, connection_to
from tests.integration.networks import Network
from tests.integration.people import Person, give_credits, sign_up
from tests.unit.gateway.small_gateway import make_services

YES, WHO, NO, GONE, BAD = (200, 201, 202), (401,), (403,), (404,), (400,)
"""The route works; wants to know who asks; says no; has never heard of it; knows the asker, not what is asked."""


HELLO = {"role": "user", "content": "Hi"}


@dataclass(frozen=True)
class Row:
    """What each gets. `{…}` in the path stands for something of the owner's."""

    nobody: tuple[int, ...]
    other: tuple[int, ...]
    owner: tuple[int, ...]
    operator: tuple[int, ...]
    body: object = None


def everybody(status: tuple[int, ...] = YES, body: object = None) -> Row:
    return Row(status, status, status, status, body)


def known(status: tuple[int, ...] = YES, body: object = None) -> Row:
    return Row(WHO, status, status, status, body)


def operators(status: tuple[int, ...] = YES, body: object = None) -> Row:
    return Row(WHO, NO, NO, status, body)


MATRIX = {
    "POST /v1/chat/completions": known(BAD, body={}),
    "POST /v1/completions": known(BAD, body={}),
    "POST /v1/embeddings": known(BAD, body={}),
    "GET /v1/chat/completions": known(),
    "GET /v1/chat/completions/{completion_id}": Row(WHO, GONE, YES, GONE),
    "POST /v1/chat/completions/{completion_id}": Row(WHO, GONE, YES, GONE, body={"metadata": {}}),
    "DELETE /v1/chat/completions/{completion_id}": Row(WHO, GONE, YES, GONE),
    "GET /v1/chat/completions/{completion_id}/messages": Row(WHO, GONE, YES, GONE),
    "POST /v1/conversations": known(body={}),
    "GET /v1/conversations/{conversation_id}": Row(WHO, GONE, YES, GONE),
    "POST /v1/conversations/{conversation_id}": Row(WHO, GONE, YES, GONE, body={"metadata": {}}),
    "DELETE /v1/conversations/{conversation_id}": Row(WHO, GONE, YES, GONE),
    "POST /v1/conversations/{conversation_id}/items": Row(WHO, GONE, YES, GONE, body={"items": []}),
    "GET /v1/conversations/{conversation_id}/items": Row(WHO, GONE, YES, GONE),
    "GET /v1/conversations/{conversation_id}/items/{item_id}": Row(WHO, GONE, YES, GONE),
    "DELETE /v1/conversations/{conversation_id}/items/{item_id}": Row(WHO, GONE, YES, GONE),
    "POST /v1/responses": known(BAD, body={}),
    "GET /v1/responses": known(BAD),
    "POST /v1/responses/compact": known(BAD, body={}),
    "POST /v1/responses/input_tokens": known(body={"input": "Hi"}),
    "GET /v1/responses/{response_id}": Row(WHO, GONE, YES, GONE),
    "GET /v1/responses/{response_id}/input_items": Row(WHO, GONE, YES, GONE),
    "POST /v1/responses/{response_id}/cancel": Row(WHO, GONE, YES, GONE, body={}),
    "DELETE /v1/responses/{response_id}": Row(WHO, GONE, YES, GONE),
    "POST /v1/messages": known(BAD, body={}),
    "POST /v1/messages/count_tokens": known(
        body={"model": "m", "messages": [{"role": "user", "content": "Hi"}]},
    ),
    "POST /api/chat": known(BAD, body={}),
    "POST /api/generate": known(BAD, body={}),
    "POST /api/embed": known(BAD, body={}),
    "POST /api/embeddings": known(BAD, body={}),
    "GET /api/version": everybody(),
    "GET /api/tags": known(),
    "GET /api/ps": known(),
    "POST /api/show": known(GONE, body={"model": "m"}),
    "GET /v1/models": known(),
    "GET /v1/models/{model}": known(GONE),
    "GET /v1/model-aliases": operators(),
    "POST /v1/model-aliases": operators(body={"name": "ours", "target": "llama-3.1-8b"}),
    "DELETE /v1/model-aliases/{name}": operators(GONE),
    "GET /v1/nodes": known(),
    "GET /v1/nodes/{node_id}": known(),
    "GET /v1/nodes/{node_id}/why": Row(WHO, NO, YES, YES),
    "GET /v1/nodes/{node_id}/history": known(),
    "GET /v1/nodes/{node_id}/reputation": known(),
    "GET /v1/nodes/{node_id}/trust": known(),
    "GET /v1/tiers": everybody(),
    "GET /v1/rewards": known(),
    "GET /v1/rewards/eras": everybody(),
    "GET /v1/rewards/eras/{era}": everybody(GONE),
    "POST /v1/rewards/fund": operators(body={"usd": "1"}),
    "POST /v1/nodes/{node_id}/reward-target": Row(WHO, NO, NO, YES, body={"to": "account"}),
    "GET /v1/nodes/{node_id}/checks": known(),
    "GET /v1/verdicts/{verdict_id}": known(GONE),
    "POST /v1/verdicts/{verdict_id}/retrial": known(GONE, body={}),
    "GET /v1/feed": everybody(),
    "GET /v1/network": everybody(),
    "GET /v1/pulse": operators(),
    "GET /v1/history": everybody(),
    "POST /v1/match": known(body={"model": "m"}),
    "GET /v1/matches": known(),
    "GET /v1/matches/{match_id}": Row(WHO, GONE, YES, YES),
    "POST /v1/signup": everybody(BAD, body={"email": "no address", "password": "x"}),
    "POST /v1/login": everybody(BAD, body={}),
    "POST /v1/login/links": known(body={}),
    "POST /v1/login/link": everybody(BAD, body={}),
    "POST /v1/logout": known(body={}),
    "POST /v1/password": known(BAD, body={}),
    "POST /v1/password/reset-request": everybody(GONE, body={"email": "a@example.org"}),
    "POST /v1/password/reset": everybody(BAD, body={}),
    "GET /v1/me": known(),
    "PATCH /v1/me": known(body={}),
    "POST /v1/me/close": known(BAD, body={}),
    "GET /v1/accounts": operators(),
    "GET /v1/accounts/{account}": operators(),
    "PATCH /v1/accounts/{account}": operators(body={"role": "owner"}),
    "POST /v1/accounts/{account}/reset-password": operators(body={}),
    "POST /v1/accounts/{account}/close": operators(body={}),
    "POST /v1/invites": operators(body={}),
    "POST /v1/keys": known(body={}),
    "GET /v1/keys": known(),
    "PATCH /v1/keys/{key_id}": Row(WHO, GONE, YES, YES, body={"name": "renamed"}),
    "DELETE /v1/keys/{key_id}": Row(WHO, GONE, YES, YES),
    "POST /v1/join-tokens": known(body={}),
    "GET /v1/credits": known(),
    "POST /v1/credits/grant": operators(body={"usd": "1", "account": "acc_local_nodes"}),
    "POST /v1/credits/deposit": known(body={"usd": "1"}),
    "GET /v1/key": known(),
    "GET /v1/usage": known(),
    "GET /v1/generation": known(BAD),
    "GET /v1/earnings": known(),
    "GET /v1/earnings/summary": known(),
    "GET /v1/earnings/leases": known((409,)),
    "GET /v1/payouts": known(),
    "POST /v1/credits/withdraw": known((409,), body={"usd": "1"}),
    "POST /v1/credits/collect": known((409,), body={}),
    "GET /v1/me/address": known((409,)),
    "POST /v1/me/address": known(BAD, body={}),
    "POST /v1/payouts/claim": known((409,), body={}),
    "GET /v1/payouts/batches": everybody(),
    "POST /v1/payouts/batches": operators(body={}),
    "GET /v1/payouts/batches/{epoch}": everybody(GONE),
    "GET /v1/payouts/batches/{epoch}/proof": known(GONE),
    "POST /v1/payouts/batches/{epoch}/decide": operators(BAD, body={}),
    "GET /v1/providers": known((409,)),
    "GET /v1/providers/{provider}": known((409,)),
    "POST /v1/providers": known(BAD, body={}),
    "POST /v1/providers/wallet": known(BAD, body={}),
    "POST /v1/providers/{provider}/bond": known(BAD, body={}),
    "POST /v1/providers/{provider}/unbond": known(BAD, body={}),
    "POST /v1/providers/{provider}/status": known(BAD, body={}),
    "POST /v1/leases/dry-run": known(BAD, body={}),
    "POST /v1/leases": known(BAD, body={}),
    "GET /v1/leases": known((409,)),
    "GET /v1/leases/{lease}": known((409,)),
    "GET /v1/leases/{lease}/match": known((409,)),
    "GET /v1/leases/{lease}/match/record": known((409,)),
    "POST /v1/leases/{lease}/cancel": known((409,), body={}),
    "POST /v1/leases/{lease}/close": known((409,), body={}),
    "GET /v1/leases/{lease}/logs": known((409,)),
    "POST /v1/leases/{lease}/tickets": known((409,), body={}),
    "POST /v1/leases/{lease}/site": known(GONE, body={"port": 80}),
    "DELETE /v1/leases/{lease}/site": known(GONE),
    "GET /v1/leases/{lease}/exec": known((409,)),
    "GET /v1/leases/{lease}/ports/{port}": known((409,)),
    "GET /v1/leases/{lease}/events": known((409,)),
    "GET /v1/leases/{lease}/secrets": known((409,)),
    "POST /v1/leases/{lease}/secrets": known(BAD, body={}),
    "POST /v1/leases/{lease}/pause": known((409,), body={}),
    "POST /v1/leases/{lease}/resume": known((409,), body={}),
    "POST /v1/leases/{lease}/reopen": known((409,), body={}),
    "POST /v1/leases/{lease}/top-up": known(BAD, body={}),
    "POST /v1/leases/{lease}/extend": known(BAD, body={}),
    "POST /v1/leases/{lease}/update": known(BAD, body={}),
    "POST /v1/leases/{name}/scale": known(BAD, body={}),
    "GET /v1/treasury": known(),
    "POST /v1/treasury/fund": operators(body={"usd": "1"}),
    "GET /v1/ledger/audit": operators(),
    "POST /v1/ledger/rebuild": operators(body={}),
    "GET /v1/ledger/uptime": operators(),
    "POST /v1/ledger/uptime/fund": operators(body={"usd": "1"}),
    "GET /v1/chain": known(),
    "GET /v1/market/tables": everybody(),
    "GET /v1/market/orders": known((409,)),
    "GET /v1/market/orders/{order}": known((409,)),
    "GET /v1/market/leases": known((409,)),
    "GET /v1/market/leases/{lease}": known((409,)),
    "GET /v1/market/providers": known((409,)),
    "GET /v1/market/validators": known((409,)),
    "POST /v1/chain/rpc": known((409,), body={"method": "eth_chainId"}),
    "GET /": everybody(),
    "GET /openapi.json": everybody(),
    "GET /{page}": everybody(GONE),
    "GET /assets/{name}": everybody(GONE),
    "GET /healthz": everybody(),
    "GET /readyz": everybody(),
    "GET /version": everybody(),
    "GET /dl": everybody(),
    "GET /dl/{name}": everybody(GONE),
    "GET /link/v1": everybody(BAD),
    "GET /link/v1/traffic": everybody(BAD),
}


def routes() -> set[str]:
    """As the router has them; a GET's shadow HEAD is the same route."""
    router = make_app(make_services()).router
    return {f"{route.method} {route.resource.canonical}" for route in router.routes() if route.resource} - {
        f"HEAD {resource.canonical}" for resource in router.resources()
    }


def test_every_route_has_a_row_and_every_row_a_route() -> None:
    assert routes() == set(MATRIX)


def test_the_api_s_document_says_what_needs_a_key_as_this_table_does() -> None:
    paths = json.loads(make_document(routes_of(endpoint_groups(make_services()))))["paths"]
    told = {
        f"{method.upper()} {path}": bool(each["security"]) for path, of in paths.items() for method, each in of.items()
    }
    assert told == {route: row.nobody == WHO for route, row in MATRIX.items() if route != "GET /openapi.json"}


@dataclass(frozen=True)
class Cast:
    network: Network
    owner: Person
    other: Person
    things: dict[str, str]

    def ask_all(self, route: str) -> dict[str, Reply]:
        """Operators come last: what they do may end what it is done to."""
        method, path = route.split(" ")
        made = ask(self.network, "POST", "/v1/keys", {"name": "spare"}, key=self.owner.key).json()
        spare = {
            "model": "no/such/model",
            "key_id": made["id"],
            "epoch": "999999",
            "era": "999999",
            "page": "status",
            "name": "no.js",
        }
        spare |= {"order": "0x00", "lease": "0x00", "provider": "0x" + "0" * 40, "port": "8080"}
        if "{response_id}" in path:
            spare["response_id"] = self._stored_response()
        if "{completion_id}" in path:
            spare["completion_id"] = self._stored_chat()
        if "{conversation_id}" in path:
            spare |= self._conversation()
        path = path.format(**self.things | spare)
        keys = {"nobody": "", "other": self.other.key, "owner": self.owner.key, "operator": self.network.api_key}
        body = MATRIX[route].body
        return {who: ask(self.network, method, path, body, key=key) for who, key in keys.items()}

    def _stored_chat(self) -> str:
        body = chat_body(self.network, "Hi", store=True, max_tokens=1)
        completion_id: str = ask(self.network, "POST", "/v1/chat/completions", body, key=self.owner.key).json()["id"]
        return completion_id

    def _conversation(self) -> dict[str, str]:
        made = ask(self.network, "POST", "/v1/conversations", {"items": [HELLO]}, key=self.owner.key).json()["id"]
        (item,) = ask(self.network, "GET", f"/v1/conversations/{made}/items", key=self.owner.key).json()["data"]
        return {"conversation_id": made, "item_id": item["id"]}

    def _stored_response(self) -> str:
        body = {"model": self.network.model, "input": "Hi", "store": True, "max_output_tokens": 1}
        made = ask(self.network, "POST", "/v1/responses", body, key=self.owner.key)
        response_id: str = made.json()["id"]
        return response_id


def make_cast(network: Network) -> Cast:
    """Two people, and a thing of each kind that is the owner's."""
    owner, other = (sign_up(network, f"{name}-{secrets.token_hex(4)}@example.org") for name in ("owner", "other"))
    give_credits(network, owner)
    failed = ask(
        network,
        "POST",
        "/v1/chat/completions",
        {"model": "none", "messages": [{"role": "user", "content": "x"}]},
        key=owner.key,
    )
    things = {
        "account": owner.account_id,
        "match_id": failed.headers["x-sparewatt-match-id"],
        "node_id": ask(network, "GET", "/v1/nodes").json()["data"][0]["id"],
    }
    return Cast(network, owner, other, things)


@pytest.fixture(scope="module")
def cast(shared_network: Network) -> Cast:
    return make_cast(shared_network)


ENDLESS = {"GET /v1/feed"}
"""Replies that go on for as long as one listens."""


@pytest.mark.parametrize("route", sorted(set(MATRIX) - {"GET /v1/nodes/{node_id}/why"} - ENDLESS))
def test_each_gets_what_the_table_says(cast: Cast, route: str) -> None:
    if route.endswith("/close"):
        cast = make_cast(cast.network)  # its owner is gone afterwards
    replies = cast.ask_all(route)
    row = MATRIX[route]
    expected = {"nobody": row.nobody, "other": row.other, "owner": row.owner, "operator": row.operator}
    got = {who: reply.status for who, reply in replies.items()}
    assert all(got[who] in expected[who] for who in got), (got, {who: reply.body for who, reply in replies.items()})


def test_why_is_for_operators_and_for_the_node_s_owner_alone(cast: Cast) -> None:
    """The nodes here are those of 'local nodes', who has no key; an owner's own is tested with two gateways."""
    replies = cast.ask_all("GET /v1/nodes/{node_id}/why")
    assert {who: reply.status for who, reply in replies.items()} == {
        "nobody": 401,
        "other": 403,
        "owner": 403,
        "operator": 200,
    }


def test_the_feed_is_for_everybody_and_begins_with_all_there_is(cast: Cast) -> None:
    with connection_to(cast.network) as connection:
        connection.request("GET", "/v1/feed")
        reply = connection.getresponse()
        lines = [reply.readline() for _ in range(4)]
    assert reply.status == 200
    assert b"event: snapshot\n" in lines
    assert cast.things["node_id"].encode() not in b"".join(lines)


def test_a_list_of_matches_holds_one_s_own_and_an_operator_s_all(cast: Cast) -> None:
    def ids(key: str) -> set[str]:
        return {row["match_id"] for row in ask(cast.network, "GET", "/v1/matches", key=key).json()["data"]}

    assert cast.things["match_id"] in ids(cast.owner.key)
    assert cast.things["match_id"] not in ids(cast.other.key)
    assert cast.things["match_id"] in ids(cast.network.api_key)


def test_a_scope_is_needed_for_each_kind_of_thing(cast: Cast) -> None:
    wanted = {
        "inference": ("GET", "/v1/models"),
        "node": ("POST", "/v1/join-tokens"),
        "admin": ("GET", "/v1/keys"),
    }
    for scope in wanted:
        key = ask(cast.network, "POST", "/v1/keys", {"scopes": [scope]}, key=cast.owner.key).json()["key"]
        got = {name: ask(cast.network, *call, {}, key=key).status for name, call in wanted.items()}
        assert {name for name, status in got.items() if status < 300} == {scope}, got


def test_an_account_sees_its_own_keys_and_an_operator_all(cast: Cast) -> None:
    def owners(key: str) -> set[str]:
        return {row["account_id"] for row in ask(cast.network, "GET", "/v1/keys", key=key).json()["data"]}

    assert owners(cast.owner.key) == {cast.owner.account_id}
    assert {cast.owner.account_id, cast.other.account_id, "acc_network"} <= owners(cast.network.api_key)


def test_an_operator_s_key_without_the_scope_admin_runs_nothing(cast: Cast) -> None:
    key = ask(cast.network, "POST", "/v1/keys", {"scopes": ["inference", "node"]}).json()["key"]
    assert ask(cast.network, "GET", "/v1/accounts", key=key).status == 403
    assert ask(cast.network, "GET", f"/v1/matches/{cast.things['match_id']}", key=key).status == 404
