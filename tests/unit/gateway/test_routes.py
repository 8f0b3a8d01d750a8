from __future__ import annotations

import asyncio

import msgspec
import pytest

from sparewatt.api.dashboard.status_page import render_status
from sparewatt.core.ids import KeyId, MatchId
from sparewatt.edge.settings import ClientTimeouts
from sparewatt.gateway.services import Services
from sparewatt.inference.matcher.formula import BALANCED
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.protocol.openai.chat import as_stream
from sparewatt.testing.clocks import ManualClock
from tests.unit.gateway.small_gateway import ADMIN, OTHER, USER, EdgeServer, bearer, make_services, running
from tests.unit.inference.nodes import MODEL, NOW_S, a_dispatched_job, a_job, a_model, a_table, node_id, some_specs
from tests.unit.inference.scripted import BODY, COMPLETION, DONE, ROLE, RecordingSink, ScriptedNode, text_event
from tests.waiting import until


def with_nodes() -> NodeTable:
    """Two nodes with one model at two prices, a third that is away with a model of its own."""
    table = NodeTable()
    table.connect(node_id(1), some_specs(a_model(quantization="q4")), now_s=NOW_S)
    dear = a_model(state="on_disk", context_length=32768, quantization="fp16", completion_price_nano=90_000_000)
    table.connect(node_id(2), some_specs(dear, a_model(id="org/with-slash"), name="cellar"), now_s=NOW_S)
    table.remember(node_id(3), some_specs(a_model(id="away"), name="away"), last_seen_unix_s=5.0)
    return table


# models


async def test_models_are_listed_as_openai_lists_them_with_prices_per_token() -> None:
    async with running(make_services(with_nodes())) as client:
        listed = await (await client.get("/v1/models", headers=bearer())).json()
    assert listed["object"] == "list"
    assert [model["id"] for model in listed["data"]] == [MODEL, "org/with-slash"]
    assert listed["data"][0] == {
        "id": MODEL,
        "object": "model",
        "created": 1_700_000_000,
        "owned_by": "sparewatt",
        "context_length": 32768,
        "capabilities": ["chat", "completions", "json_schema", "logprobs", "tools"],
        "aliases": [
            "meta-llama/Meta-Llama-3-8B-Instruct",
            "llama3:8b",
            "llama3",
            "llama3:8b-instruct",
            "llama3:instruct",
        ],
        "quantizations": ["fp16", "q4"],
        "nodes_online": 2,
        "warm": 1,
        "pricing": {"prompt": "0.00000002", "completion": "0.00000006"},
    }


async def test_an_empty_network_lists_no_models() -> None:
    async with running(make_services()) as client:
        assert await (await client.get("/v1/models", headers=bearer())).json() == {
            "object": "list",
            "data": [],
            "next": None,
        }


async def test_a_model_may_have_slashes_and_one_that_is_away_is_not_found() -> None:
    async with running(make_services(with_nodes())) as client:
        shown = await client.get("/v1/models/org/with-slash", headers=bearer())
        assert (await shown.json())["id"] == "org/with-slash"
        away = await client.get("/v1/models/away", headers=bearer())
        assert away.status == 404
        assert (await away.json())["error"]["code"] == "model_not_found"


# nodes


async def test_nodes_show_claimed_and_measured_side_by_side() -> None:
    async with running(make_services(with_nodes())) as client:
        listed = (await (await client.get("/v1/nodes", headers=bearer())).json())["data"]
    assert [(node["name"], node["state"]) for node in listed] == [
        ("attic", "online"),
        ("cellar", "online"),
        ("away", "offline"),
    ]
    assert listed[0]["claimed"] == {"vram_bytes": 24 << 30, "tflops": 82.0, "hourly_usd": None}
    assert listed[0]["models"][0]["claimed"] is None
    assert listed[0]["models"][0]["measured"] == {
        "first_token_s": 1.1,
        "ttft_s": 0.1,
        "prefill_tps": 1000.0,
        "prefill_square_s": 0.0,
        "decode_tps": 50.0,
    }
    assert listed[2]["last_seen_at"] == 5.0


async def test_a_node_is_found_by_its_address_in_any_case() -> None:
    async with running(make_services(with_nodes())) as client:
        found = await client.get(f"/v1/nodes/{node_id(1).upper()}", headers=bearer())
        missing = await client.get(f"/v1/nodes/{node_id(9)}", headers=bearer())
    assert (found.status, missing.status) == (200, 404)


# explanations


def serve_one(services: Services, match_id: str) -> None:
    """A job of the user's that found no node."""
    job = a_dispatched_job(match=a_job(id=MatchId(match_id)), key_id=KeyId("key_user"))
    services.dispatcher.dispatch(job, RecordingSink(), ranking=BALANCED)


@pytest.mark.parametrize(("secret", "status"), [(USER, 200), (ADMIN, 200), (OTHER, 404)])
async def test_an_explanation_is_for_its_own_key_and_for_operators(secret: str, status: int) -> None:
    services = make_services()
    serve_one(services, "match_a")
    async with running(services) as client:
        reply = await client.get("/v1/matches/match_a", headers=bearer(secret))
        assert reply.status == status


async def test_a_foreign_match_and_an_unknown_one_look_the_same() -> None:
    services = make_services()
    serve_one(services, "match_a")
    async with running(services) as client:
        foreign = await (await client.get("/v1/matches/match_a", headers=bearer(OTHER))).json()
        unknown = await (await client.get("/v1/matches/match_b", headers=bearer(OTHER))).json()
    assert foreign["error"]["message"].replace("match_a", "match_b") == unknown["error"]["message"]
    assert foreign["error"]["code"] == "match_not_found"


async def test_a_dry_run_explains_and_keeps_nothing() -> None:
    async with running(make_services(with_nodes())) as client:
        answer = await (await client.post("/v1/match", headers=bearer(), json={"model": MODEL})).json()
        nobody = await (await client.post("/v1/match", headers=bearer(), json={"model": "lama"})).json()
    assert (answer["dry_run"], answer["match_id"], answer["attempts"]) == (True, None, [])
    assert answer["chosen"] == node_id(1)
    assert answer["job"]["vram_needed_bytes"] > 0
    assert "why_nobody" not in answer
    assert nobody["chosen"] is None
    assert MODEL in nobody["why_nobody"]


async def test_an_unknown_policy_is_refused() -> None:
    async with running(make_services(with_nodes())) as client:
        reply = await client.post("/v1/match", headers=bearer(), json={"model": MODEL, "policy": "best"})
        assert (await reply.json())["error"]["code"] == "invalid_value"
        known = await client.post("/v1/match", headers=bearer(), json={"model": MODEL, "policy": "neuralgrid"})
        assert (await known.json())["policy"] == "neuralgrid"


# keys and tokens


async def test_only_an_admin_makes_lists_and_revokes_keys() -> None:
    services = make_services()
    async with running(services) as client:
        assert (await client.post("/v1/keys", headers=bearer(), json={})).status == 403
        made = await (await client.post("/v1/keys", headers=bearer(ADMIN), json={"name": "app"})).json()
        assert (await client.get("/v1/models", headers=bearer(made["key"]))).status == 200
        listed = await (await client.get("/v1/keys", headers=bearer(ADMIN))).json()
        assert [set(key) & {"key", "hash"} for key in listed["data"]] == [set()]
        assert (await client.delete(f"/v1/keys/{made['id']}", headers=bearer(ADMIN))).status == 200
        assert (await client.get("/v1/models", headers=bearer(made["key"]))).status == 401
        assert (await client.delete("/v1/keys/key_none", headers=bearer(ADMIN))).status == 404


async def test_a_join_token_needs_the_node_scope() -> None:
    async with running(make_services()) as client:
        assert (await client.post("/v1/join-tokens", headers=bearer(), json={})).status == 403
        made = await client.post("/v1/join-tokens", headers=bearer(ADMIN), json={"life_s": 60})
        assert (await made.json())["token"].startswith("join-sw-")
        assert (await client.post("/v1/join-tokens", headers=bearer(ADMIN), json={"life_s": 0})).status == 400


# the status page


async def test_the_status_page_escapes_text_of_nodes() -> None:
    evil = "<script>alert(1)</script>"
    services = make_services(a_table(1, some_specs(a_model(id=evil), region=f"{evil}&\"'")))
    page = render_status(services.states.all(), jobs_running=0)
    assert evil not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    async with running(services) as client:
        reply = await client.get("/")
    assert reply.headers["content-security-policy"].startswith("default-src 'none'")


async def test_the_status_page_shows_no_node_by_name() -> None:
    page = render_status(make_services(with_nodes()).states.all(), jobs_running=0)
    assert "attic" not in page
    assert node_id(1) not in page
    assert "<b>2</b> of 3 nodes online" in page


async def test_a_stopping_gateway_is_not_ready_and_takes_no_jobs() -> None:
    services = make_services(with_nodes())
    async with running(services) as client:
        ready = await (await client.get("/readyz")).json()
        services.drain.is_draining = True
        stopping = await client.get("/readyz")
        refused = await client.post("/v1/chat/completions", headers=bearer(), data=BODY)
        assert (await client.get("/healthz")).status == 200
    assert ready == {"status": "ready", "nodes_serving": 2, "causes": []}
    assert (stopping.status, refused.status) == (503, 503)
    assert refused.headers["retry-after"] == "2"


# chat


def one_node(services: Services) -> ScriptedNode:
    services.table.connect(node_id(1), some_specs(), now_s=NOW_S)
    assert isinstance(services.clock, ManualClock)
    node = ScriptedNode(1, services.clock, services.table)
    services.links.links[node.id] = node.link
    return node


async def test_a_chat_streams_and_names_its_node() -> None:
    services = make_services()
    node = one_node(services)
    async with running(services) as client:
        node.answer_when_asked(ROLE, text_event("Hi"), DONE)
        body = BODY[:-1] + b',"stream":true}'
        reply = await client.post("/v1/chat/completions", headers=bearer(), data=body)
        assert await reply.read() == ROLE + text_event("Hi") + DONE
    assert reply.headers["content-type"] == "text/event-stream"
    assert reply.headers["x-sparewatt-node"] == node.id
    assert reply.headers["x-request-id"].startswith("req_")
    assert msgspec.json.decode(node.body)["stream_options"] == {"include_usage": True}


async def test_a_chat_in_one_piece_is_passed_on_as_it_is() -> None:
    services = make_services()
    node = one_node(services)
    async with running(services) as client:
        node.answer_when_asked(COMPLETION)
        reply = await client.post("/v1/chat/completions", headers=bearer(), data=BODY)
        assert await reply.read() == COMPLETION
    assert reply.content_type == "application/json"
    assert node.body == as_stream(BODY)


async def test_a_chat_in_one_piece_reports_no_first_token() -> None:
    """Streamed, its explanation has one; in one piece it would be the time of the whole answer."""
    services = make_services()
    node = one_node(services)
    async with running(services) as client:
        for body, events in ((BODY, [COMPLETION]), (BODY[:-1] + b',"stream":true}', [ROLE, text_event("Hi"), DONE])):
            node.answer_when_asked(*events)
            reply = await client.post("/v1/chat/completions", headers=bearer(), data=body)
            await reply.read()
            match_id, is_streamed = reply.headers["x-sparewatt-match-id"], body is not BODY
            told = await (await client.get(f"/v1/matches/{match_id}", headers=bearer())).json()
            listed = await (await client.get("/v1/matches?limit=1", headers=bearer())).json()
            for shown in (told, listed["data"][0]):
                assert shown["streamed"] is is_streamed
                assert (shown["attempts"][0]["first_token_ms"] is not None) is is_streamed
    assert sum(services.counter.interval.take(["network"])["network", ""].first_token) == 1


async def test_an_error_of_the_model_server_is_an_openai_error() -> None:
    services = make_services()
    node = one_node(services)
    async with running(services) as client:
        node.answer_when_asked(b'{"error":{"message":"too hot"}}', status=400)
        reply = await client.post("/v1/chat/completions", headers=bearer(), data=BODY)
        assert (await reply.json())["error"] == {
            "message": "The only model server of 'llama-3-8b' that could take the request rejected the request "
            "(bad_request). Check its messages, tools and parameters.",
            "type": "invalid_request_error",
            "param": None,
            "code": "invalid_request",
        }
    assert reply.status == 400
    assert reply.headers["x-sparewatt-match-id"].startswith("match_")


async def test_a_failed_match_can_be_looked_up() -> None:
    services = make_services()
    async with running(services) as client:
        reply = await client.post("/v1/chat/completions", headers=bearer(), data=BODY)
        assert reply.status == 404
        found = await client.get(f"/v1/matches/{reply.headers['x-sparewatt-match-id']}", headers=bearer())
        assert (await found.json())["outcome"] == "failed"


async def test_a_client_that_leaves_in_the_middle_stops_the_node_and_is_no_crash(
    caplog: pytest.LogCaptureFixture,
) -> None:
    services = make_services()
    node = one_node(services)
    async with running(services) as client:
        asking = asyncio.ensure_future(
            client.post("/v1/chat/completions", headers=bearer(), data=BODY[:-1] + b',"stream":true}')
        )
        await until(lambda: node.body)
        node.begin(text_event("Hi"))
        reply = await asking
        assert await reply.content.readany() == text_event("Hi")
        reply.close()

        def goes_on_or_was_stopped() -> bool:
            node.data(b": ping\n\n", text_event("more"))
            return bool(node.cancelled)

        await until(goes_on_or_was_stopped)
        await until(lambda: services.dispatcher.running == 0)
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_client_that_reads_nothing_is_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The job, its place on the node, the connection and what is queued on it are let go."""
    services = make_services()
    node = one_node(services)
    async with running(services, timeouts=ClientTimeouts(write_s=0.05, check_s=0.01)) as client:
        _, writer = await asyncio.open_connection(client.host, client.port, limit=1)
        body = BODY[:-1] + b',"stream":true}'
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {USER}\r\n"
        writer.write(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        await until(lambda: node.body)
        node.begin(text_event("Hi"))
        chunk = text_event("x" * 50_000)

        def sends_all_it_may() -> bool:
            while not node.cancelled and node.may_send_bytes >= len(chunk):
                node.data(chunk)
            return bool(node.cancelled)

        await until(sends_all_it_may)
        assert services.dispatcher.running == 0
        server = client.server
        assert isinstance(server, EdgeServer)
        await until(lambda: not server.registry.connections)
        writer.transport.abort()
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []
