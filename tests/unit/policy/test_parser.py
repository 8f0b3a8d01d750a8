from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparewatt.core.errors import BadRequest, InvalidField, UnknownField, UnsupportedParameter
from sparewatt.policy.field_types.base import POLICY_LIST_MAX
from sparewatt.policy.fields import FIELDS
from sparewatt.policy.formatter import to_line, to_object
from sparewatt.policy.grammar import POLICY_CONDITIONS_MAX, POLICY_TEXT_CHARS_MAX
from sparewatt.policy.model import ANY, MaxPrice, NameFilter, Policy, Range
from sparewatt.policy.openrouter import TRANSLATIONS
from sparewatt.policy.parser import read_line, read_object, read_query, read_request, read_standing, split_model
from sparewatt.policy.policy_file import read_policy_file
from sparewatt.policy.regions import COVERS, PLACES

SENTENCE = Policy(
    region=COVERS["EU"],
    gpu_class=frozenset({"a100", "h100", "h200", "b200", "b300"}),
    compliance=frozenset({"gdpr"}),
    uptime=Range(low=0.99),
    max_price=MaxPrice(300_000_000, 300_000_000),
    sort="price",
)
"""Cheapest in EU, A100 class, GDPR, uptime over 99 %, at most $0.30 per million tokens."""

AS_OBJECT = {
    "region": ["EU"],
    "gpu_class": ">=a100",
    "compliance": ["gdpr"],
    "uptime": ">=0.99",
    "max_price": 0.30,
    "sort": "price",
}
AS_LINE = "region=EU gpu_class>=a100 compliance=gdpr uptime>=0.99 max_price=0.30 sort=price"
AS_YAML = """
policy: {region: [EU], gpu_class: ">=a100", compliance: [gdpr],
         uptime: ">=0.99", max_price: 0.30, sort: price}
"""


def test_all_carriers_say_the_same() -> None:
    assert read_object(AS_OBJECT) == (SENTENCE, ())
    assert read_line(AS_LINE) == SENTENCE
    assert read_policy_file(AS_YAML).policy == SENTENCE
    assert read_query(pair.split("=", 1) for pair in AS_LINE.split()) == SENTENCE  # type: ignore[misc]
    assert read_query([("q", AS_LINE)]) == SENTENCE
    assert read_request("qwen3-8b:floor@eu", header=AS_LINE, provider=AS_OBJECT) == ("qwen3-8b", SENTENCE, ())


# lines


@pytest.mark.parametrize(
    ("line", "policy"),
    [
        ("", ANY),
        ("  region = EU  ", Policy(region=COVERS["EU"])),
        ("region in [DE, fr]", Policy(region=frozenset({"DE", "FR"}))),
        ("region=DE,FR region notin FR", Policy(region=frozenset({"DE"}))),
        ('gpu="RTX 4090",l4', Policy(gpu=NameFilter(allowed=frozenset({"rtx-4090", "l4"})))),
        ("gpu!=RTX_4090", Policy(gpu=NameFilter(denied=frozenset({"rtx-4090"})))),
        ("gpu=l4,t4 gpu!=t4", Policy(gpu=NameFilter(allowed=frozenset({"l4"})))),
        ("gpu_class>h100", Policy(gpu_class=frozenset({"h200", "b200", "b300"}))),
        ("gpu_class<rtx16", Policy(gpu_class=frozenset({"rtx8", "rtx12"}))),
        ("vram_gb>=24 vram_gb<80", Policy(vram_gb=Range(low=24.0, high=80.0, high_open=True))),
        ("uptime==0.9", Policy(uptime=Range(low=0.9))),
        ("gpu_count=2", Policy(gpu_count=Range(low=2.0, high=2.0))),
        ("max_price.prompt=0.1 max_price.completion<=$0.3", Policy(max_price=MaxPrice(100_000_000, 300_000_000))),
        ("max_price=0.3 max_price.prompt=0.1", Policy(max_price=MaxPrice(100_000_000, 300_000_000))),
        ("weights.price=2 weights.ttft=0.5", Policy(weights=(("price", 2.0), ("ttft", 0.5)))),
        ("allow_fallbacks=false", Policy(allow_fallbacks=False)),
        ("order=b,a,b", Policy(order=("b", "a"))),
        ("order=b,a allow_fallbacks=no", Policy(order=("b", "a"), allow_fallbacks=False, only=frozenset({"a", "b"}))),
    ],
)
def test_a_line_is_read(line: str, policy: Policy) -> None:
    assert read_line(line) == policy


@pytest.mark.parametrize(
    ("line", "param"),
    [
        ("region=Atlantis", "region"),
        ("uptime>=1.5", "uptime"),
        ("uptime>=nan", "uptime"),
        ("uptime=0.9,0.8", "uptime"),
        ("gpu_count=1.5", "gpu_count"),
        ("gpu_count!=1", "gpu_count"),
        ("region>=EU", "region"),
        ("min_throughput<=5", "min_throughput"),
        ("max_price>=5", "max_price"),
        ("max_price=-1", "max_price"),
        ("max_hourly=1e99", "max_hourly"),
        ("sort=price sort=latency", "sort"),
        ("weights.price=1 weights.price=2", "weights.price"),
        ("weights=1", "weights"),
        ("allow_resume=maybe", "allow_resume"),
        ("vram_gb>=80 vram_gb<=24", "vram_gb"),
        ("region=EU region=US", "region"),
        ("region=EU region!=DE,EEA", "region"),
        ("gpu_class<rtx8", "gpu_class"),
        ("gpu=A100-80GB", "gpu"),
        ("only!=attic", "only"),
        ("only=[]", "only"),
        ("tier=gold", "tier"),
        ("region", "X-Sparewatt-Route"),
        ("region=EU,", "X-Sparewatt-Route"),
        ('only="half', "X-Sparewatt-Route"),
        ('only="\\q"', "X-Sparewatt-Route"),
        ("=EU", "X-Sparewatt-Route"),
        ("sort=price " * (POLICY_TEXT_CHARS_MAX // 10), "X-Sparewatt-Route"),
        ("region=EU " * (POLICY_CONDITIONS_MAX + 1), "X-Sparewatt-Route"),
        ("only=" + ",".join(map(str, range(POLICY_LIST_MAX + 1))), "only"),
        ("only=" + "x" * 101, "only"),
    ],
)
def test_a_bad_line_is_refused_and_the_field_named(line: str, param: str) -> None:
    with pytest.raises(InvalidField) as caught:
        read_line(line)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("line", "nearest"),
    [
        ("regoin=EU", "region"),
        ("gpuclass>=a100", "gpu_class"),
        ("max_price.image=1", "max_price.prompt"),
        ("ᛞ=1", None),
    ],
)
def test_an_unknown_word_is_refused_with_the_nearest(line: str, nearest: str | None) -> None:
    with pytest.raises(BadRequest) as caught:
        read_line(line)
    if nearest:
        assert isinstance(caught.value, UnknownField)
        assert repr(nearest) in caught.value.message


# objects


@pytest.mark.parametrize(
    ("said", "policy"),
    [
        ({}, ANY),
        (None, ANY),
        ({"region": None}, ANY),
        ({"region": "EU"}, Policy(region=COVERS["EU"])),
        ({"region": "!=EU"}, Policy(region=frozenset(p for p in PLACES if not COVERS[p] & COVERS["EU"]))),
        ({"gpu": "RTX 4090"}, Policy(gpu=NameFilter(allowed=frozenset({"rtx-4090"})))),
        ({"vram_gb": ">=24 <80"}, Policy(vram_gb=Range(low=24.0, high=80.0, high_open=True))),
        ({"vram_gb": 24}, Policy(vram_gb=Range(low=24.0))),
        ({"max_price": {"prompt": 0.1, "completion": None}}, Policy(max_price=MaxPrice(prompt=100_000_000))),
        ({"max_price": "0.000000001"}, Policy(max_price=MaxPrice(1, 1))),
        ({"ignore": [], "order": [], "max_price": {}}, ANY),
        ({"weights": {"price": 2, "load": 0}}, Policy(weights=(("load", 0.0), ("price", 2.0)))),
    ],
)
def test_an_object_is_read(said: Any, policy: Policy) -> None:
    assert read_object(said) == (policy, ())


@pytest.mark.parametrize(
    ("said", "param"),
    [
        ([], "provider"),
        ({"region": 5}, "provider.region"),
        ({"region": []}, "provider.region"),
        ({"region": ["EU", 5]}, "provider.region"),
        ({"region": {"in": "EU"}}, "provider.region"),
        ({"only": []}, "provider.only"),
        ({"uptime": True}, "provider.uptime"),
        ({"uptime": float("nan")}, "provider.uptime"),
        ({"vram_gb": 10**400}, "provider.vram_gb"),
        ({"max_price": True}, "provider.max_price"),
        ({"max_price": {"prompt": "much"}}, "provider.max_price.prompt"),
        ({"max_price": 1e-12}, "provider.max_price"),
        ({"allow_fallbacks": "true"}, "provider.allow_fallbacks"),
        ({"weights": {"price": "2"}}, "provider.weights.price"),
        ({"weights": {"price": -1}}, "provider.weights.price"),
        ({"weights": []}, "provider.weights"),
        ({str(n): 1 for n in range(POLICY_CONDITIONS_MAX + 1)}, "provider"),
    ],
)
def test_a_bad_object_is_refused_and_the_field_named(said: Any, param: str) -> None:
    with pytest.raises(InvalidField) as caught:
        read_object(said)
    assert caught.value.param == param


def test_an_unknown_field_of_an_object_is_refused_with_the_nearest_even_of_openrouters() -> None:
    with pytest.raises(UnknownField, match="'data_collection'") as caught:
        read_object({"data_colection": "deny"})
    assert caught.value.param == "provider.data_colection"


# OpenRouter's object


@pytest.mark.parametrize(
    ("said", "policy", "ignored"),
    [
        ({"data_collection": "deny"}, Policy(data_policy="no_log"), ()),
        ({"data_collection": "allow"}, Policy(data_policy="may_log"), ()),
        ({"data_collection": "allow", "zdr": True}, Policy(data_policy="no_log", retention="none"), ()),
        ({"zdr": False}, ANY, ()),
        ({"enforce_distillable_text": False}, ANY, ()),
        ({"sort": "exacto"}, ANY, ("sort",)),
        ({"sort": {"by": "throughput", "partition": "model"}}, Policy(sort="throughput"), ()),
        ({"sort": {"by": "price", "partition": "none"}}, Policy(sort="price"), ("sort.partition",)),
        ({"max_price": {"prompt": 1, "request": 2, "image": 3}}, Policy(max_price=MaxPrice(prompt=10**9)), ()),
        ({"max_price": {"request": 2}}, ANY, ()),
        ({"preferred_min_throughput": 50}, ANY, ("preferred_min_throughput",)),
        ({"preferred_max_latency": 1.5}, ANY, ("preferred_max_latency",)),
        ({"preferred_max_latency": {"p50": 3, "p90": None}}, ANY, ("preferred_max_latency",)),
        ({"quantizations": ["fp8", "unknown"]}, Policy(quantizations=frozenset({"fp8", "unknown"})), ()),
        (
            {"only": ["Attic"], "ignore": ["cellar"]},
            Policy(only=frozenset({"attic"}), ignore=frozenset({"cellar"})),
            (),
        ),
        ({"require_parameters": True}, Policy(require_parameters=True), ()),
    ],
)
def test_a_field_of_openrouter_is_translated_or_named_as_ignored(
    said: Any, policy: Policy, ignored: tuple[str, ...]
) -> None:
    assert read_object(said) == (policy, ignored)


OPENROUTER_FIELDS = (
    "order only ignore allow_fallbacks require_parameters data_collection zdr enforce_distillable_text quantizations "
    "sort preferred_min_throughput preferred_max_latency max_price"
)


@pytest.mark.parametrize("name", OPENROUTER_FIELDS.split())
def test_every_field_of_openrouter_is_known_and_its_type_checked(name: str) -> None:
    assert read_object({name: None}) == (ANY, ())
    with pytest.raises(BadRequest) as caught:
        read_object({name: {"nonsense": [1]}})
    assert (caught.value.param or "").startswith(f"provider.{name}")


def test_a_restriction_that_cannot_be_satisfied_is_refused() -> None:
    with pytest.raises(UnsupportedParameter):
        read_object({"enforce_distillable_text": True})


# fields without effect


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("preferred_min_throughput", "'min_throughput'"),
        ("preferred_max_ttft_ms", "'max_ttft_ms'"),
        ("preferred_max_latency", "'max_ttft_ms'"),
        ("explain", "GET /v1/matches/{id}"),
    ],
)
def test_a_field_without_effect_is_refused_by_name_and_says_what_to_use_instead(name: str, instead: str) -> None:
    readers: list[tuple[str, Callable[[], object]]] = [
        (name, lambda: read_line(f"region=EU {name}=1")),
        (name, lambda: read_query([(name, "1")])),
        (name, lambda: read_standing(f"{name}=1")),
        (f"policy.{name}", lambda: read_standing({name: 1})),
    ]
    for param, read in readers:
        with pytest.raises(UnsupportedParameter, match=re.escape(instead)) as caught:
            read()
        assert (caught.value.code, caught.value.param) == ("unsupported_parameter", param)
        assert repr(name) in caught.value.message


@pytest.mark.parametrize("name", ["preferred_max_ttft_ms", "explain"])
def test_a_field_without_effect_that_openrouter_does_not_have_is_refused_in_a_request_too(name: str) -> None:
    with pytest.raises(UnsupportedParameter) as caught:
        read_object({name: True})
    assert caught.value.param == f"provider.{name}"


def test_a_standing_policy_has_no_reply_to_name_ignored_fields_so_they_are_refused() -> None:
    assert read_standing({"sort": "price"}) == Policy(sort="price")
    with pytest.raises(UnsupportedParameter, match="'sort' has no effect"):
        read_standing({"sort": "exacto"})


@pytest.mark.parametrize(
    "stored",
    [
        {"region": "EU", "explain": True, "preferred_min_throughput": 60, "preferred_max_ttft_ms": 500},
        {"region": "EU", "preferred_max_latency": {"p50": 2, "p99": 9}, "sort": "exacto"},
        "region=EU explain=true preferred_min_throughput=60 preferred_max_ttft_ms=500",
    ],
)
def test_a_policy_that_was_stored_with_such_fields_is_read_without_them(stored: object) -> None:
    assert read_standing(stored, is_stored=True) == Policy(region=COVERS["EU"])
    with pytest.raises(UnsupportedParameter):
        read_standing(stored)


def test_a_typo_in_a_stored_policy_is_refused_all_the_same() -> None:
    with pytest.raises(UnknownField):
        read_standing({"regoin": "EU"}, is_stored=True)


# query strings


@pytest.mark.parametrize(
    ("pairs", "policy"),
    [
        ([("uptime>", "0.9"), ("uptime<0.95", "")], Policy(uptime=Range(low=0.9, high=0.95, high_open=True))),
        ([("uptime", ">=0.9")], Policy(uptime=Range(low=0.9))),
        ([("region!", "US")], read_line("region!=US")),
        ([("gpu", "RTX 4090")], Policy(gpu=NameFilter(allowed=frozenset({"rtx-4090"})))),
        ([("region", "DE,FR")], Policy(region=frozenset({"DE", "FR"}))),
        ([("max_price.prompt", "0.1"), ("sort", "price")], Policy(max_price=MaxPrice(prompt=10**8), sort="price")),
        ([("q", "region=DE"), ("sort", "price")], Policy(region=frozenset({"DE"}), sort="price")),
    ],
)
def test_a_query_string_is_read(pairs: list[tuple[str, str]], policy: Policy) -> None:
    assert read_query(pairs) == policy


@pytest.mark.parametrize("pair", [("regoin", "EU"), ("region", ""), ("limit", "5"), ("uptime>", ""), ("", "")])
def test_a_bad_query_string_is_refused(pair: tuple[str, str]) -> None:
    with pytest.raises(BadRequest):
        read_query([pair])


def test_a_query_string_has_an_end() -> None:
    with pytest.raises(InvalidField):
        read_query([("region", "EU")] * (POLICY_CONDITIONS_MAX + 1))


# models


@pytest.mark.parametrize(
    ("model", "name", "policy"),
    [
        ("qwen3-8b", "qwen3-8b", ANY),
        ("llama3:8b", "llama3:8b", ANY),
        ("llama3:8b:nitro", "llama3:8b", Policy(sort="throughput")),
        ("qwen3-8b@eu", "qwen3-8b", Policy(region=COVERS["EU"])),
        ("qwen3-8b:floor@DE", "qwen3-8b", Policy(sort="price", region=frozenset({"DE"}))),
        ("qwen3-8b:q8_0", "qwen3-8b", Policy(quantizations=frozenset({"int8"}))),
        (
            "qwen3-8b:Q4_K_M:floor@DE",
            "qwen3-8b",
            Policy(quantizations=frozenset({"int4"}), sort="price", region=frozenset({"DE"})),
        ),
        ("qwen3-8b:unknown", "qwen3-8b:unknown", ANY),
        ("qwen3-8b@ue", "qwen3-8b@ue", ANY),
        (":floor", ":floor", ANY),
        ("@eu", "@eu", ANY),
    ],
)
def test_suffixes_of_a_model_are_ours_or_stay(model: str, name: str, policy: Policy) -> None:
    assert split_model(model) == (name, policy)


def test_carriers_of_one_request_narrow_one_another_and_the_bodys_preference_holds() -> None:
    asked = read_request("m:nitro@eu", header="region=DE,US uptime>=0.9", provider={"sort": "price", "zdr": True})
    region, uptime = frozenset({"DE"}), Range(low=0.9)
    assert asked.policy == Policy(region=region, uptime=uptime, sort="price", data_policy="no_log", retention="none")


def test_carriers_that_contradict_one_another_are_refused() -> None:
    with pytest.raises(InvalidField) as caught:
        read_request("m@eu", provider={"region": "US"})
    assert caught.value.param == "region"


def test_no_fallbacks_in_one_carrier_make_the_order_of_another_an_only() -> None:
    asked = read_request("m", header="order=attic", provider={"allow_fallbacks": False})
    assert asked.policy.only == frozenset({"attic"})


REFERENCE = (Path(__file__).parents[3] / "docs/reference/policy.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [*FIELDS, *TRANSLATIONS])
def test_every_field_is_in_the_reference(name: str) -> None:
    assert f"`{name}`" in REFERENCE


EXAMPLES = re.findall(r"^\| `\w+` \|.*\| `(.*?)` \|$", REFERENCE, re.MULTILINE)


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_of_the_reference_reads_back_the_same(example: str) -> None:
    assert read_line(to_line(read_line(example))) == read_line(example) != ANY


def test_every_field_has_an_example() -> None:
    assert {name for example in EXAMPLES for name in to_object(read_line(example))} == set(FIELDS)
