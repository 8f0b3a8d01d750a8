"""`models: [a, b]`: a request falls to the next model when one cannot answer, before anything was sent."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientResponse

from sparewatt.core.errors import (
    FirstTokenTimeout,
    InsufficientCredits,
    InvalidField,
    JobFailed,
    ModelNotFound,
    NoCapacity,
    NoEligibleNode,
    QueueFull,
    RateLimited,
    SparewattError,
    UnsupportedParameter,
)
from sparewatt.gateway.services import Services
from sparewatt.inference.dispatch.failure_reasons import RefusedByServer
from sparewatt.inference.dispatch.model import DirectPath
from sparewatt.inference.model_fallback import FallbackSink, is_of_one_model
from sparewatt.protocol.link.node_report import ModelReport, NodeLoad
from sparewatt.testing.clocks import ManualClock
from tests.unit.gateway.small_gateway import LENDER, Client, bearer, make_services, running
from tests.unit.inference.nodes import NOW_S, a_model, node_id, some_specs
from tests.unit.inference.scripted import COMPLETION, DONE, RecordingSink, ScriptedNode, text_event

CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "Hi"}]
ANSWER = COMPLETION.replace(b'"object"', b'"model":"as the server says","object"')


class Gateway:
    """One node per model."""

    def __init__(self, client: Client, services: Services, nodes: Mapping[str, ScriptedNode]) -> None:
        self.client, self.services, self.nodes = client, services, nodes

    async def ask(self, path: str = CHAT, **fields: Any) -> ClientResponse:
        body = {"messages": MESSAGES} if path == CHAT else {"prompt": "Hi"}
        return await self.client.post(path, headers=bearer(), data=json.dumps(body | fields))


@asynccontextmanager
async def a_gateway(*reports: ModelReport) -> AsyncIterator[Gateway]:
    services = make_services()
    assert isinstance(services.clock, ManualClock)
    nodes = {}
    for number, report in enumerate(reports, start=1):
        services.table.connect(node_id(number), some_specs(report, name=f"n{number}"), now_s=NOW_S)
        node = nodes[report.id] = ScriptedNode(number, services.clock, services.table)
        services.links.links[node.id] = node.link
    async with running(services) as client:
        yield Gateway(client, services, nodes)


def wanted(services: Services) -> list[str]:
    return [each.name for each in services.demand.wanted()]


A, B = a_model(id="a"), a_model(id="b")


@pytest.mark.parametrize(
    "fields",
    [{"models": ["nobody-has-it", "b"]}, {"model": "nobody-has-it", "models": ["b"]}],
    ids=["list", "model first"],
)
async def test_a_model_that_nobody_serves_is_skipped_and_the_reply_names_the_other(fields: dict[str, Any]) -> None:
    async with a_gateway(A, B) as gateway:
        gateway.nodes["b"].answer_when_asked(ANSWER)
        reply = await gateway.ask(**fields)
        assert reply.status == 200
        assert reply.headers["x-sparewatt-model"] == "b"
        sent = json.loads(gateway.nodes["b"].body)
        assert (sent["model"], "models" in sent) == ("b", False)
        assert gateway.nodes["a"].opened == []
        assert wanted(gateway.services) == ["nobody-has-it"]


async def test_the_first_is_taken_if_it_can_answer() -> None:
    async with a_gateway(A, B) as gateway:
        gateway.nodes["a"].answer_when_asked(ANSWER)
        reply = await gateway.ask(model="a", models=["b"])
        assert (await reply.json())["model"] == "as the server says"  # the names are the same: nothing is rewritten
        assert reply.headers["x-sparewatt-model"] == "a"
        assert gateway.nodes["b"].opened == []


async def test_a_model_whose_nodes_all_fail_gives_way_to_the_next() -> None:
    async with a_gateway(A, B) as gateway:
        gateway.nodes["a"].answer_when_asked(b'{"error":{"message":"out of memory"}}', status=500)
        gateway.nodes["b"].answer_when_asked(text_event("Hi"), DONE)
        reply = await gateway.ask(models=["a", "b"], stream=True)
        assert await reply.read() == text_event("Hi") + DONE
        assert reply.headers["x-sparewatt-model"] == "b"
        match_id = reply.headers["x-sparewatt-match-id"]
        told = await (await gateway.client.get(f"/v1/matches/{match_id}", headers=bearer())).json()
        assert (told["model"], told["outcome"]) == ("b", "done")
        assert len(gateway.nodes["a"].opened) == 1
        assert gateway.services.dispatcher.running == 0


async def test_a_model_that_is_busy_gives_way_to_one_with_a_free_slot() -> None:
    async with a_gateway(A, B) as gateway:
        gateway.services.table.set_load(node_id(1), NodeLoad(foreign=100), now_s=NOW_S)
        gateway.nodes["b"].answer_when_asked(ANSWER)
        assert (await gateway.ask(models=["a", "b"])).headers["x-sparewatt-model"] == "b"
        gateway.services.table.set_load(node_id(1), NodeLoad(), now_s=NOW_S)
        gateway.nodes["a"].answer_when_asked(ANSWER)
        assert (await gateway.ask(models=["a", "b"])).headers["x-sparewatt-model"] == "a"


async def test_a_model_without_an_allowed_node_gives_way() -> None:
    async with a_gateway(a_model(id="a", quantization="Q4_0"), a_model(id="b", quantization="Q8_0")) as gateway:
        gateway.nodes["b"].answer_when_asked(ANSWER)
        reply = await gateway.ask(models=["a", "b"], provider={"quantizations": ["int8"]})
        assert (reply.status, reply.headers["x-sparewatt-quantization"]) == (200, "Q8_0")


async def test_a_request_that_the_server_refuses_is_the_client_s_own_fault() -> None:
    async with a_gateway(A, B) as gateway:
        gateway.nodes["a"].answer_when_asked(b'{"error":{"message":"no such role"}}', status=400)
        reply = await gateway.ask(models=["a", "b"])
        assert reply.status == 400
        assert gateway.nodes["b"].opened == []


async def test_after_the_last_the_client_gets_its_error() -> None:
    async with a_gateway(A, B) as gateway:
        for node in gateway.nodes.values():
            node.answer_when_asked(b'{"error":{"message":"out of memory"}}', status=500)
        reply = await gateway.ask(models=["a", "b"])
        assert (reply.status, (await reply.json())["error"]["code"]) == (502, "node_failed")
        assert [len(node.opened) for node in gateway.nodes.values()] == [1, 1]


async def test_if_nobody_serves_any_of_them_the_first_is_what_was_not_found() -> None:
    async with a_gateway(A) as gateway:
        reply = await gateway.ask(models=["x", "y"])
        error = (await reply.json())["error"]
        assert (reply.status, error["code"]) == (404, "model_not_found")
        assert "'x'" in error["message"]
        assert wanted(gateway.services) == ["x"]


async def test_text_completions_have_it_too() -> None:
    async with a_gateway(A, B) as gateway:
        gateway.nodes["b"].answer_when_asked(b'{"id":"c","choices":[{"index":0,"text":"Hello"}]}')
        reply = await gateway.ask("/v1/completions", models=["x", "b"])
        assert reply.status == 200
        assert json.loads(gateway.nodes["b"].body)["model"] == "b"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "model"),
        ({"models": []}, "model"),
        ({"models": None}, "model"),
        ({"models": [f"m{n}" for n in range(9)]}, "models"),
        ({"model": "m", "models": [f"m{n}" for n in range(8)]}, "models"),
        ({"models": ["a", 5]}, "models[1]"),
        ({"models": [""]}, "models[0]"),
        ({"models": "a"}, "models"),
    ],
)
async def test_a_list_that_is_none_or_too_long_is_refused(fields: dict[str, Any], param: str) -> None:
    async with a_gateway(A) as gateway:
        reply = await gateway.ask(**fields)
        assert (reply.status, (await reply.json())["error"]["param"]) == (400, param)


async def test_an_empty_list_beside_a_model_means_nothing() -> None:
    async with a_gateway(A) as gateway:
        gateway.nodes["a"].answer_when_asked(ANSWER)
        for models in ([], None, ["a"]):
            assert (await gateway.ask(model="a", models=models)).status == 200
            assert "models" not in json.loads(gateway.nodes["a"].latest_body)


# names of models


async def test_a_request_may_use_any_alias_and_reads_it_in_the_reply() -> None:
    report = a_model(id="llama-3.1-8b", served_as="llama3.1:8b-instruct-q4_K_M", quantization="Q4_K_M")
    async with a_gateway(report) as gateway:
        node = gateway.nodes["llama-3.1-8b"]
        node.answer_when_asked(ANSWER)
        for asked in ("llama-3.1-8b", "meta-llama/Llama-3.1-8B-Instruct", "llama3.1:8b"):
            for suffix in ("", ":floor", "@eu", ":q4_0@eu"):
                reply = await gateway.ask(model=f"{asked}{suffix}")
                assert (await reply.json())["model"] == asked
                assert json.loads(node.latest_body)["model"] == "llama3.1:8b-instruct-q4_K_M"
        assert reply.headers["x-sparewatt-served-as"] == "llama3.1:8b-instruct-q4_K_M"


async def test_a_quantization_suffix_restricts_and_the_second_of_a_node_is_reached_by_it() -> None:
    async with a_gateway(a_model(id="m", quantization="Q4_K_M")) as gateway:
        services, node = gateway.services, gateway.nodes["m"]
        refused = await gateway.ask(model="m:q8_0")
        assert (refused.status, (await refused.json())["error"]["code"]) == (503, "no_eligible_node")
        second = a_model(id="m:q8_0", served_as="m-q8", quantization="Q8_0")
        services.table.set_specs(node.id, some_specs(a_model(id="m", quantization="Q4_K_M"), second))
        services.clock.advance(1.0)  # type: ignore[attr-defined]
        node.answer_when_asked(ANSWER)
        reply = await gateway.ask(model="m:q8_0")
        assert (reply.status, reply.headers["x-sparewatt-quantization"]) == (200, "Q8_0")
        assert node.opened[-1].model == "m-q8"
        assert (await gateway.ask(model="m:q4_0")).headers["x-sparewatt-quantization"] == "Q4_K_M"


async def test_what_was_asked_for_and_not_there_is_told_to_the_owner() -> None:
    async with a_gateway(A) as gateway:
        for _ in range(2):
            assert (await gateway.ask(model="meta-llama/Llama-3.1-8B-Instruct")).status == 404
        gateway.services.links.owners[node_id(1)] = "acc_lender"  # type: ignore[assignment]
        headers = {"authorization": f"Bearer {LENDER}"}
        report = await (await gateway.client.get(f"/v1/nodes/{node_id(1)}/why", headers=headers)).json()
        assert report["wanted"] == [{"model": "llama-3.1-8b", "requests": 2, "keys": 1}]
        assert report["sentences"][-1] == "Asked for, and no node had it: llama-3.1-8b (2 requests of 1 key)."


# which errors


@pytest.mark.parametrize(
    ("error", "is_of_one"),
    [
        (ModelNotFound("m", nearest=[]), True),
        (NoCapacity("full"), True),
        (NoEligibleNode("barred"), True),
        (JobFailed("broke"), True),
        (FirstTokenTimeout("late"), True),
        (QueueFull("full"), True),
        (UnsupportedParameter("tools"), True),
        (RefusedByServer("bad role"), False),
        (InsufficientCredits("poor"), False),
        (RateLimited("slow down"), False),
        (InvalidField("no"), False),
    ],
)
def test_only_errors_of_one_model_lead_to_the_next(error: SparewattError, is_of_one: bool) -> None:  # noqa: FBT001
    assert is_of_one_model(error) is is_of_one
    sink, offered = RecordingSink(), []

    def take_over(failure: SparewattError) -> bool:
        offered.append(failure)
        return True

    FallbackSink(sink, take_over).fail(error, {})
    assert (sink.error is None, offered == [error]) == (is_of_one, is_of_one)


def test_a_reply_passes_through() -> None:
    sink = RecordingSink()
    through = FallbackSink(sink, lambda _: False)
    through.start({"a": "b"})
    through.data(b"x")
    assert isinstance(through.direct_path(), DirectPath)
    through.finish()
    assert (sink.calls, sink.headers, sink.body) == (["start", "finish"], {"a": "b"}, b"x")
    failed = RecordingSink()
    FallbackSink(failed, lambda _: False).fail(NoCapacity("full"), {})
    assert failed.calls == ["fail"]
