from __future__ import annotations

import pytest

from sparewatt.core.errors import KeyPolicyViolation
from sparewatt.policy.composition import PolicyLevel, contradictions, intersect, narrow
from sparewatt.policy.model import ANY
from sparewatt.policy.parser import read_line


@pytest.mark.parametrize(
    ("general", "specific", "both"),
    [
        ("region=EU", "region=DE,US", "region=DE"),
        ("uptime>=0.9", "uptime>=0.99", "uptime>=0.99"),
        ("uptime>0.9", "uptime>=0.9", "uptime>0.9"),
        ("vram_gb>=24", "vram_gb<=80", "vram_gb>=24 vram_gb<=80"),
        ("max_price=0.3", "max_price.prompt=0.1", "max_price.prompt=0.1 max_price.completion=0.3"),
        ("max_hourly=1", "max_hourly=2", "max_hourly=1"),
        ("min_throughput=10", "min_throughput=5", "min_throughput=10"),
        ("max_ttft_ms=10", "max_ttft_ms=5", "max_ttft_ms=5"),
        ("only=a,b", "only=b,c", "only=b"),
        ("ignore=a", "ignore=b", "ignore=a,b"),
        ("compliance=gdpr", "compliance=soc2", "compliance=gdpr,soc2"),
        ("gpu=a100,l4", "gpu!=l4", "gpu=a100"),
        ("data_policy=no_log", "data_policy=may_log", "data_policy=no_log"),
        ("warm=require", "warm=any", "warm=require"),
        ("warm=prefer", "warm=any", "warm=any"),
        ("allow_fallbacks=false", "allow_fallbacks=true", "allow_fallbacks=false"),
        ("require_parameters=true", "require_parameters=false", "require_parameters=true"),
        ("retention=hour", "retention=day", "retention=hour"),
        ("retention=hour", "retention=none", "retention=none"),
        ("checks=none", "checks=allowed", "checks=none"),
        ("checks=allowed", "checks=none", "checks=none"),
        ("sort=price", "sort=latency", "sort=latency"),
        ("weights.price=1", "weights.ttft=2", "weights.ttft=2"),
        ("near=DE", "near=FR", "near=FR"),
        ("order=a", "order=b", "order=b"),
    ],
)
def test_levels_compose(general: str, specific: str, both: str) -> None:
    assert intersect(read_line(general), read_line(specific)) == read_line(both)


@pytest.mark.parametrize(
    ("key", "narrower", "wider"),
    [
        ("region=EU", "region=DE", "region=DE,US"),
        ("gpu=a100,l4", "gpu=l4", "gpu=h100"),
        ("gpu!=l4", "gpu=a100", "gpu=l4"),
        ("gpu_class>=a100", "gpu_class>=h100", "gpu_class>=l40s"),
        ("uptime>=0.9", "uptime>0.9", "uptime>=0.89"),
        ("vram_gb>=24", "vram_gb<=80", "vram_gb>=16 vram_gb<=80"),
        ("max_price=0.3", "max_price.prompt=0.3", "max_price.completion=0.31"),
        ("max_hourly=1", "max_hourly=0.5", "max_hourly=1.5"),
        ("min_throughput=10", "min_throughput=11", "min_throughput=9"),
        ("max_ttft_ms=100", "max_ttft_ms=99", "max_ttft_ms=101"),
        ("only=a,b", "only=a", "only=a,c"),
        ("attested_by=a", "attested_by=a", "attested_by=b"),
        ("data_policy=no_log", "data_policy=no_log", "data_policy=may_log"),
        ("warm=require", "warm=require", "warm=prefer"),
        ("allow_fallbacks=false", "allow_fallbacks=false", "allow_fallbacks=true"),
        ("allow_resume=false", "allow_resume=false", "allow_resume=true"),
        ("require_parameters=true", "require_parameters=true", "require_parameters=false"),
        ("retention=hour", "retention=none", "retention=day"),
        ("checks=none", "checks=none", "checks=allowed"),
    ],
)
def test_a_request_may_narrow_and_never_widen(key: str, narrower: str, wider: str) -> None:
    levels = [PolicyLevel("network", ANY), PolicyLevel("key", read_line(key))]
    assert narrow(levels, read_line(narrower)) == intersect(read_line(key), read_line(narrower))
    with pytest.raises(KeyPolicyViolation, match="The key policy says") as caught:
        narrow(levels, read_line(wider))
    assert caught.value.param == key.split("=", maxsplit=1)[0].rstrip("<>!")
    assert caught.value.status == 403


@pytest.mark.parametrize("request_line", ["ignore=b", "compliance=soc2", "sort=price", "order=b", ""])
def test_what_only_denies_or_prefers_widens_nothing(request_line: str) -> None:
    key = read_line("ignore=a compliance=gdpr sort=latency order=a region=EU")
    assert narrow([PolicyLevel("key", key)], read_line(request_line)).region == key.region


def test_standing_levels_tighten_silently() -> None:
    levels = [PolicyLevel("account", read_line("region=EU")), PolicyLevel("key", read_line("region=DE,US"))]
    assert narrow(levels, ANY) == read_line("region=DE")


def test_contradictions_of_levels_are_found() -> None:
    assert contradictions(intersect(read_line("region=EU uptime>=0.9"), read_line("region=US uptime<0.5"))) == [
        "region",
        "uptime",
    ]
    assert contradictions(read_line("region=EU")) == []


def test_no_fallbacks_on_one_level_make_the_order_of_another_an_only() -> None:
    effective = narrow([PolicyLevel("key", read_line("order=a,b"))], read_line("allow_fallbacks=false"))
    assert effective.only == frozenset({"a", "b"})
    assert narrow([PolicyLevel("key", read_line("order=a,b"))], ANY).only is None
