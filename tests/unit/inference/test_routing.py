"""Who may serve a request, from all who have a say: by the pure function, and as a client sees it on the chat route."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import ClientResponse
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.accounts.principal import Principal, principal_from_key, principal_from_session
from sparewatt.core.errors import (
    BadRequest,
    InvalidField,
    KeyPolicyViolation,
    SparewattError,
    StartupError,
    UnknownField,
    UnsupportedParameter,
)
from sparewatt.core.ids import AccountId, ModelId
from sparewatt.core.limits import POLICY_BYTES_MAX
from sparewatt.gateway.services import Services
from sparewatt.inference import routing as module
from sparewatt.inference.fleet.model_catalog import ModelCatalog
from sparewatt.inference.routing import REQUEST_POLICIES_KEPT, Routing, check_policy, read_network_policy, route
from sparewatt.policy.fields import FIELDS, WEIGHTS
from sparewatt.policy.formatter import to_line
from sparewatt.policy.model import ANY, Policy
from sparewatt.policy.parser import read_line
from sparewatt.protocol.link.node_report import Speed
from sparewatt.store.accounts import SessionRow
from sparewatt.store.database import KeyRow
from sparewatt.testing.clocks import ManualClock
from tests.unit.gateway.small_gateway import OTHER, USER, Client, bearer, key_row, make_services, running
from tests.unit.inference.nodes import MODEL, NOW_S, a_model, node_id, some_specs
from tests.unit.inference.scripted import COMPLETION, ScriptedNode

CHAT = "/v1/chat/completions"
IGNORED = "x-sparewatt-ignored-params"
KEY = key_row("user", USER, "inference")


def key(policy: object = None, account: object = None) -> KeyRow:
    texts = [None if value is None else json.dumps(value) for value in (policy, account)]
    return replace(KEY, policy=texts[0], account_policy=texts[1])


def session(account: str | None) -> Principal:
    later = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
    return principal_from_session(SessionRow(b"hash", AccountId("acc_user"), "user", account, later))


def routed(
    model: str = MODEL,
    *,
    provider: object = None,
    header: str | None = None,
    principal: Principal | None = None,
    network: Policy = ANY,
    models: tuple[str, ...] = (MODEL,),
) -> Routing:
    raw = b"" if provider is None else json.dumps(provider).encode()
    return route(
        model,
        header=header,
        provider=raw,
        principal=principal or principal_from_key(KEY),
        network=network,
        catalog=ModelCatalog(),
        is_model=models.__contains__,
    )


def said(routing: Routing) -> str:
    return to_line(routing.policy)


# levels


def test_a_request_that_says_nothing_has_no_policy() -> None:
    assert routed() == Routing(MODEL, ANY, asked=MODEL)
    assert routed().policy is ANY
    assert routed(provider={}).policy == ANY
    assert routed(header="").policy is ANY


def test_all_levels_narrow_one_another() -> None:
    found = routed(
        provider={"vram_gb": ">=24"},
        header="gpu_count>=1",
        principal=principal_from_key(key({"max_price": 2}, {"ignore": ["barn"]})),
        network=read_line("region=EU"),
    )
    assert sorted(said(found).split()) == ["gpu_count>=1", "ignore=barn", "max_price=2", "region=EU", "vram_gb>=24"]


@pytest.mark.parametrize("level", ["network", "account", "key"])
@pytest.mark.parametrize(
    ("standing", "asked", "field"),
    [
        ({"region": "EU"}, {"region": "US"}, "region"),
        ({"region": "EU"}, {"region": ["DE", "US"]}, "region"),
        ({"max_price": 1}, {"max_price": 2}, "max_price"),
        ({"only": ["a"]}, {"only": ["b"]}, "only"),
        ({"gpu_class": ">=a100"}, {"gpu_class": "rtx24"}, "gpu_class"),
        ({"allow_fallbacks": False}, {"allow_fallbacks": True}, "allow_fallbacks"),
        ({"warm": "require"}, {"warm": "any"}, "warm"),
    ],
)
def test_a_request_may_not_widen_what_any_level_says(level: str, standing: Any, asked: Any, field: str) -> None:
    line = to_line(routed(provider=standing).policy)
    ways: dict[str, dict[str, Any]] = {
        "network": {"network": read_line(line)},
        "account": {"principal": principal_from_key(key(None, standing))},
        "key": {"principal": principal_from_key(key(standing))},
    }
    levels = ways[level]
    assert routed(provider=standing, **levels).policy == read_line(line)
    with pytest.raises(KeyPolicyViolation) as caught:
        routed(provider=asked, **levels)
    assert (caught.value.param, caught.value.status) == (field, 403)
    assert f"The {level} policy" in caught.value.message


@pytest.mark.parametrize(
    "asked",
    [{"provider": {"region": "EU"}}, {"header": "region=EU"}, {"model": f"{MODEL}@eu"}],
    ids=lambda asked: next(iter(asked)),
)
def test_no_carrier_is_a_way_around_a_key(asked: Any) -> None:
    with pytest.raises(KeyPolicyViolation):
        routed(**asked, principal=principal_from_key(key({"region": "US"})))


def test_a_request_may_narrow_and_levels_that_leave_nobody_are_no_error_of_the_request() -> None:
    assert said(routed(provider={"region": "DE"}, principal=principal_from_key(key({"region": "EU"})))) == "region=DE"
    assert routed(principal=principal_from_key(key({"region": "US"}, {"region": "EU"}))).policy.region == frozenset()


def test_a_browsers_session_has_its_accounts_policy() -> None:
    principal = session('{"region":"EU"}')
    assert said(routed(principal=principal)) == "region=EU"
    with pytest.raises(KeyPolicyViolation, match="account policy"):
        routed(provider={"region": "US"}, principal=principal)
    assert routed(principal=session(None)).policy is ANY


def test_a_standing_policy_may_be_a_line() -> None:
    assert said(routed(principal=principal_from_key(key("region=EU max_price<=1")))) == "region=EU max_price=1"


# policies that cannot be read


@pytest.mark.parametrize("text", ['{"regoin":"EU"}', "{", '{"region":"Atlantis"}', "[1]", "7", '"regoin=EU"', "\ud800"])
@pytest.mark.parametrize("level", ["account", "key"])
def test_a_standing_policy_that_cannot_be_read_any_more_is_a_clear_error(text: str, level: str) -> None:
    row = replace(KEY, policy=text) if level == "key" else replace(KEY, account_policy=text)
    with pytest.raises(InvalidField) as caught:
        routed(principal=principal_from_key(row))
    assert caught.value.param == f"{level}.policy"
    assert f"The {level} policy cannot be read any more" in caught.value.message
    with pytest.raises(SparewattError):
        check_policy(text)


def test_a_network_whose_policy_cannot_be_read_does_not_start() -> None:
    assert read_network_policy(None) is ANY
    assert read_network_policy("region=EU") == read_line("region=EU")
    with pytest.raises(StartupError, match="regoin"):
        read_network_policy("regoin=EU")


@pytest.mark.parametrize(
    ("field", "nearest"), [("regoin", "region"), ("max_prise", "max_price"), ("gpuclass", "gpu_class")]
)
def test_an_unknown_field_is_refused_with_the_nearest_word(field: str, nearest: str) -> None:
    carriers: list[dict[str, Any]] = [{"provider": {field: "EU"}}, {"header": f"{field}=EU"}]
    for carrier in carriers:
        with pytest.raises(UnknownField) as caught:
            routed(**carrier)
        assert (caught.value.status, caught.value.code) == (400, "unknown_field")
        assert f"Did you mean '{nearest}'?" in caught.value.message


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
words = st.sampled_from(
    [*FIELDS, "data_collection", "zdr", "sort", "enforce_distillable_text", "preferred_max_latency"]
)


@given(provider=anything | st.dictionaries(words, anything, max_size=3), header=st.none() | st.text(max_size=20))
def test_whatever_a_client_sends_is_read_or_refused(provider: object, header: str | None) -> None:
    try:
        found = routed(provider=provider, header=header, principal=principal_from_key(key({"region": "EU"})))
    except (BadRequest, KeyPolicyViolation):
        return
    assert found.policy.region is not None
    assert found.preference
    assert all(text.isascii() and text.isprintable() for text in found.headers().values())


# suffixes and names


@pytest.mark.parametrize(
    ("model", "models", "name", "policy"),
    [
        ("m", (), "m", ""),
        ("m:floor", (), "m", "sort=price"),
        ("m:nitro@de", ("m",), "m", "region=DE sort=throughput"),
        ("m:floor", ("m:floor", "m"), "m:floor", ""),
        ("m:floor@eu", ("m:floor",), "m:floor", "region=EU"),
        ("m@eu", ("m@eu",), "m@eu", ""),
        ("m@eu:floor", ("m@eu",), "m@eu", "sort=price"),
        ("m:8b", (), "m:8b", ""),
        ("m:8b:floor", ("m:8b",), "m:8b", "sort=price"),
        ("m@attic", (), "m@attic", ""),
        (":floor", (), ":floor", ""),
    ],
)
def test_a_suffix_is_one_only_if_the_name_is_not_a_models_own(
    model: str, models: tuple[str, ...], name: str, policy: str
) -> None:
    found = routed(model, models=models)
    assert (found.model, said(found)) == (name, policy)


def test_a_models_own_sign_contradicts_nothing() -> None:
    assert said(routed("m@eu", provider={"region": "US"}, models=("m@eu",))) == "region=US"
    with pytest.raises(InvalidField):
        routed("m@eu", provider={"region": "US"}, models=("m",))


# preferences, and what is not heeded


def test_sort_and_weights_become_the_matchers_preference() -> None:
    assert routed().preference.sort is None
    assert routed(provider={"sort": "score"}).preference.sort is None
    assert routed(f"{MODEL}:floor").preference.sort == "price"
    assert routed(header="sort=latency").preference.sort == "latency"
    weights = dict(routed(provider={"weights": dict.fromkeys(WEIGHTS, 2)}).preference.weights)
    assert set(weights.values()) == {2.0}
    assert {"price", "queue", "prefill", "decode", "network"} <= set(weights)
    assert dict(routed(header="weights.ttft=0").preference.weights) == {"queue": 0.0, "prefill": 0.0}


def test_what_was_understood_and_has_no_effect_is_named() -> None:
    assert routed(provider={"region": "EU"}).headers() == {}
    assert routed(provider={"sort": "exacto"}).headers() == {IGNORED: "provider.sort"}
    assert routed(header="near=DE").headers() == {}
    assert routed(provider={"require_parameters": False}).headers() == {}


def test_openrouters_preferences_are_served_and_named_as_ignored() -> None:
    found = routed(provider={"preferred_min_throughput": {"p90": 50}, "preferred_max_latency": 2, "region": "EU"})
    assert said(found) == "region=EU"
    assert found.headers() == {IGNORED: "provider.preferred_min_throughput, provider.preferred_max_latency"}


@pytest.mark.parametrize("text", ['{"region": "DE", "explain": true}', '"region=DE preferred_min_throughput=60"'])
def test_a_policy_that_was_stored_with_a_retired_field_still_holds_and_is_not_stored_again(text: str) -> None:
    assert said(routed(principal=principal_from_key(replace(KEY, policy=text)))) == "region=DE"
    with pytest.raises(UnsupportedParameter):
        check_policy(text)


# what is kept


def test_what_requests_say_is_read_once_and_not_kept_for_ever() -> None:
    module._read.cache_clear()
    for cents in range(REQUEST_POLICIES_KEPT + 10):
        routed(provider={"max_price": cents / 100})
    assert module._read.cache_info().currsize == REQUEST_POLICIES_KEPT
    before = module._read.cache_info().hits
    assert routed(provider={"max_price": cents / 100}) == routed(provider={"max_price": cents / 100})
    assert module._read.cache_info().hits == before + 2


def test_what_is_very_long_is_read_and_not_kept() -> None:
    module._read.cache_clear()
    names = [f"{number:03}" + "x" * 40 for number in range(200)]
    assert len(json.dumps(names)) > POLICY_BYTES_MAX
    assert routed(provider={"ignore": names}).policy.ignore == frozenset(names)
    assert module._read.cache_info().currsize == 0


# on the chat route


class Gateway:
    """Three nodes that answer at once: in Germany, in the US, and one in Germany that is cheap and slow."""

    def __init__(self) -> None:
        self.services: Services = make_services()
        clock = self.services.clock
        assert isinstance(clock, ManualClock)
        table = self.services.table
        dear = a_model(completion_price_nano=2_000_000_000)
        slow = a_model(completion_price_nano=0, measured=Speed(prefill_tps=500.0, decode_tps=25.0, ttft_s=0.2))
        table.connect(node_id(1), some_specs(dear, region="de", name="berlin"), now_s=NOW_S)
        table.connect(node_id(2), some_specs(dear, region="us", name="boston"), now_s=NOW_S)
        table.connect(node_id(3), some_specs(slow, region="de", name="barn"), now_s=NOW_S)
        self.nodes = [ScriptedNode(number, clock, table) for number in (1, 2, 3)]
        for node in self.nodes:
            node.answer_when_asked(COMPLETION)
            self.services.links.links[node.id] = node.link

    def served(self, reply: ClientResponse) -> int:
        return int(reply.headers["x-sparewatt-node"], 16)


@asynccontextmanager
async def gateway() -> AsyncIterator[tuple[Gateway, Client]]:
    made = Gateway()
    async with running(made.services) as client:
        yield made, client


async def chat(
    client: Client, *, secret: str = USER, headers: dict[str, str] | None = None, **body: object
) -> ClientResponse:
    whole = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], **body}
    return await client.post(CHAT, headers=bearer(secret) | (headers or {}), json=whole)


async def test_a_request_goes_only_where_it_says() -> None:
    async with gateway() as (made, client):
        for asked, number in (("boston", 2), ("barn", 3), ("berlin", 1)):
            reply = await chat(client, provider={"only": [asked]})
            assert (reply.status, made.served(reply)) == (200, number)
        assert made.served(await chat(client, provider={"region": "US"})) == 2
        assert made.served(await chat(client, headers={"x-sparewatt-route": "region=US"})) == 2
        assert made.served(await chat(client, model=f"{MODEL}@us")) == 2
        assert made.served(await chat(client, provider={"order": ["boston", "barn"]})) == 2
        assert made.served(await chat(client, model=f"{MODEL}:floor")) == 3
        assert made.served(await chat(client, provider={"sort": "throughput", "region": "DE"})) == 1


@pytest.mark.parametrize("provider", [{"only": ["boston"]}, None, {}])
async def test_the_node_sees_neither_the_policy_nor_the_suffix(provider: object) -> None:
    async with gateway() as (made, client):
        reply = await chat(client, model=f"{MODEL}:floor", provider=provider, temperature=0.5)
        sent = json.loads(made.nodes[made.served(reply) - 1].body)
    assert "provider" not in sent
    assert (sent["model"], sent["temperature"]) == (MODEL, 0.5)


async def test_a_provider_of_null_is_not_for_the_node_either() -> None:
    async with gateway() as (made, client):
        reply = await chat(client, provider=None)
        assert "provider" not in json.loads(made.nodes[made.served(reply) - 1].body)
        reply = await chat(client)
        assert reply.status == 200


async def test_a_name_with_a_colon_reaches_the_node_as_it_is() -> None:
    async with gateway() as (made, client):
        name = ModelId("qwen:floor")
        made.services.table.set_specs(node_id(1), some_specs(a_model(id=name), region="de"))
        reply = await chat(client, model=name)
        assert (reply.status, made.served(reply)) == (200, 1)
        assert json.loads(made.nodes[0].body)["model"] == name


@pytest.mark.parametrize(
    ("provider", "status", "code", "param"),
    [
        ({"region": "US"}, 403, "key_policy_violation", "region"),
        ({"regoin": "DE"}, 400, "unknown_field", "provider.regoin"),
        ({"region": "Atlantis"}, 400, "invalid_value", "provider.region"),
        ({"max_price": -1}, 400, "invalid_value", "provider.max_price"),
        ({"uptime": ">=0.99"}, 503, "no_eligible_node", None),
        (["region"], 400, "invalid_value", "provider"),
        ("region=EU", 400, "invalid_value", "provider"),
    ],
)
async def test_what_cannot_be_is_told(provider: object, status: int, code: str, param: str | None) -> None:
    async with gateway() as (made, client):
        made.services.keys.put([replace(key({"region": "EU"}), version=9)])
        reply = await chat(client, provider=provider)
        error = (await reply.json())["error"]
        assert (reply.status, error["code"], error["param"]) == (status, code, param)
        assert all(not node.opened for node in made.nodes)
        ok = await chat(client)
        assert made.served(ok) in (1, 3)


@pytest.mark.parametrize("raw", [b'{"max_price":1e999}', b"[" * 5000 + b"]" * 5000, b'{"region":"\\ud800"}', b"1e999"])
async def test_odd_json_is_refused_and_breaks_nothing(raw: bytes) -> None:
    body = b'{"model":"llama-3-8b","messages":[{"role":"user","content":"Hi"}],"provider":' + raw + b"}"
    async with gateway() as (_, client):
        reply = await client.post(CHAT, headers=bearer(), data=body)
        assert reply.status == 400, await reply.text()


@pytest.mark.parametrize("line", ["r\xe9gion=EU", "region=\xff", "region=EU;", "=", "x" * 5000])
async def test_an_odd_header_is_refused_and_breaks_nothing(line: str) -> None:
    async with gateway() as (_, client):
        reply = await chat(client, headers={"x-sparewatt-route": line})
        assert reply.status == 400, await reply.text()


async def test_a_key_whose_policy_cannot_be_read_any_more_is_told_and_others_go_on() -> None:
    async with gateway() as (made, client):
        made.services.keys.put([replace(KEY, policy='{"was_known":1}', version=9)])
        reply = await chat(client)
        error = (await reply.json())["error"]
        assert (reply.status, error["param"]) == (400, "key.policy")
        assert "was_known" in error["message"]
        assert (await chat(client, secret=OTHER)).status == 200


async def test_the_reply_names_what_had_no_effect_also_when_it_is_an_error() -> None:
    async with gateway() as (_, client):
        reply = await chat(client, provider={"sort": "exacto", "near": "DE"})
        assert (reply.status, reply.headers[IGNORED]) == (200, "provider.sort")
        reply = await chat(client, provider={"sort": "exacto", "uptime": ">=0.99"})
        assert (reply.status, reply.headers[IGNORED]) == (503, "provider.sort")
        assert IGNORED not in (await chat(client)).headers


async def test_an_explanation_shows_what_the_policy_ruled_out() -> None:
    async with gateway() as (_, client):
        reply = await chat(client, provider={"region": "US"})
        told = await (await client.get(f"/v1/matches/{reply.headers['x-sparewatt-match-id']}", headers=bearer())).json()
        dry = await client.post("/v1/match", headers=bearer(), json={"model": MODEL, "provider": {"region": "US"}})
        by_header = await client.post(
            "/v1/match", headers=bearer() | {"x-sparewatt-route": "region=US"}, json={"model": MODEL}
        )
        for found in (told, await dry.json(), await by_header.json()):
            funnel = [(step["filter"], step["dropped"], step["left"]) for step in found["funnel"]]
            assert funnel[:2] == [("model", 0, 3), ("region", 2, 1)]
            assert funnel[-1][2] == 1
            assert found["chosen"] == node_id(2)


async def test_a_dry_run_that_finds_nobody_says_what_would_help() -> None:
    async with gateway() as (_, client):
        asked = {"model": f"{MODEL}@us", "provider": {"max_price": "0.00001"}}
        told = await (await client.post("/v1/match", headers=bearer(), json=asked)).json()
    assert told["chosen"] is None
    assert told["policy_effective"] == {"region": ["US"], "max_price": "0.00001"}
    assert "region (2), max_price (1)" in told["why_nobody"]
    assert any("max_price" in line and "adds 1 node" in line for line in told["nearest_relaxations"])
