from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from sparewatt.core.errors import InvalidAmount
from sparewatt.core.money import Nano, parse_usd
from sparewatt.node.hardware.gpu import DetectedGpu, Hardware
from sparewatt.node.hardware.gpu_bench import GpuSpeed
from sparewatt.node.specs.specs_builder import BackendSpecs, SpecsBuilder, token_prices
from sparewatt.protocol.link.node_report import PRICE_NANO_MAX, NodeLoad, NodeSpecs, PriceBasis, Speed, validated
from tests.unit.node.rig import HARDWARE, backend_model, node_settings

SPEED = Speed(prefill_tps=1000.0, decode_tps=100.0)
BASIS = PriceBasis(prompt_tps=1000.0, completion_tps=100.0)


# prices


@pytest.mark.parametrize("tokens_per_s", [1e-3, 0.7, 33.3, 1e7])
def test_a_slower_node_costs_more_per_token(tmp_path: Path, tokens_per_s: float) -> None:
    settings = node_settings(tmp_path, hourly_usd="1")
    slow, quick = (PriceBasis(prompt_tps=1.0, completion_tps=tps) for tps in (tokens_per_s, 2 * tokens_per_s))
    assert token_prices(settings, slow)[1] >= token_prices(settings, quick)[1]


def test_a_price_stays_within_what_a_gateway_takes(tmp_path: Path) -> None:
    settings, slow = node_settings(tmp_path, hourly_usd="1000000"), PriceBasis(prompt_tps=1e-3, completion_tps=1e-3)
    assert token_prices(settings, slow) == (PRICE_NANO_MAX, PRICE_NANO_MAX)


def test_without_prices_they_follow_from_the_hour_and_the_measured_speed(tmp_path: Path) -> None:
    price = token_prices(node_settings(tmp_path, hourly_usd="0.36"), BASIS)
    assert price == (parse_usd("0.1"), parse_usd("1"))


def test_a_report_has_the_basis_of_its_prices(tmp_path: Path) -> None:
    builder = SpecsBuilder(
        node_settings(tmp_path, hourly_usd="0.36"), HARDWARE, speed_of=lambda _: SPEED, price_basis_of=lambda _: BASIS
    )
    report = builder.model_report(backend_model())
    assert (report.measured, report.price_basis) == (SPEED, BASIS)
    assert (report.prompt_price_nano, report.completion_price_nano) == (parse_usd("0.1"), parse_usd("1"))


def test_a_set_price_wins_even_if_it_is_zero(tmp_path: Path) -> None:
    settings = node_settings(tmp_path, prompt_usd_per_mtok="0", completion_usd_per_mtok="2.5")
    assert token_prices(settings, BASIS) == (Nano(0), parse_usd("2.5"))


def test_one_price_may_be_set_and_the_other_follow(tmp_path: Path) -> None:
    price = token_prices(node_settings(tmp_path, hourly_usd="0.36", prompt_usd_per_mtok="7"), BASIS)
    assert price == (parse_usd("7"), parse_usd("1"))


def test_a_model_that_is_not_measured_has_no_price_yet(tmp_path: Path) -> None:
    assert token_prices(node_settings(tmp_path), None) == (Nano(0), Nano(0))


@pytest.mark.parametrize("field", ["hourly_usd", "prompt_usd_per_mtok", "completion_usd_per_mtok"])
def test_a_malformed_price_is_refused(tmp_path: Path, field: str) -> None:
    with pytest.raises(InvalidAmount):
        token_prices(node_settings(tmp_path, **{field: "cheap"}), BASIS)


# specs


def builder(tmp_path: Path, **changes: Any) -> SpecsBuilder:
    given: dict[str, Any] = {"settings": node_settings(tmp_path), "hardware": HARDWARE, "speed_of": lambda _: None}
    return SpecsBuilder(**(given | changes))


def test_capabilities_are_those_reported_and_those_probed(tmp_path: Path) -> None:
    probed = builder(tmp_path, probed_capabilities=lambda _: ("tools", "chat"))
    assert probed.model_report(backend_model()).capabilities == ("chat", "tools")
    assert probed.model_report(backend_model(capabilities=("embeddings",))).capabilities == (
        "embeddings",
        "tools",
        "chat",
    )
    assert builder(tmp_path).model_report(backend_model()).capabilities is None


def test_each_gpu_is_reported_and_the_first_with_its_benchmark(tmp_path: Path) -> None:
    gpus = (DetectedGpu("nvidia", "H200\n", 10**11, "580"), DetectedGpu("nvidia", "H200", 10**11))
    hardware = Hardware("H200", 2, 2 * 10**11, 100.0, gpus)
    speed = GpuSpeed(by="torch", copy_bytes_s=4.1e12, fp16_tflops=755.0)
    specs = builder(tmp_path, hardware=hardware, gpu_speed=speed).build(BackendSpecs("vllm", 8, [backend_model()]))
    assert validated(specs) == specs
    assert [(gpu.model, gpu.copy_bytes_s) for gpu in specs.gpus] == [("H200", 4.1e12), ("H200", None)]
    assert (specs.tflops_measured, specs.bandwidth_bytes_s) == (755.0, None)


# old and new together
OLD_LOAD = b'{"running":1,"queued":0,"foreign":0,"draining":true}'


def test_a_report_of_an_older_agent_is_understood() -> None:
    load = msgspec.json.decode(OLD_LOAD, type=NodeLoad)
    assert (load.draining, load.paused, load.sensors, load.kv_used) == (True, None, None, None)
    speed = msgspec.json.decode(b'{"prefill_tps":1.0,"decode_tps":1.0}', type=Speed)
    assert speed.batch is None


def test_a_report_of_a_newer_agent_is_understood_by_an_older_gateway(tmp_path: Path) -> None:
    """Which knows none of the new fields, and leaves them out."""

    class OldLoad(msgspec.Struct):
        running: int = 0
        draining: bool = False

    class OldSpecs(msgspec.Struct):
        name: str
        gpu_count: int

    hardware = Hardware("H200", 1, 10**11, 1.0, (DetectedGpu("nvidia", "H200", 10**11, "580"),))
    specs = builder(tmp_path, hardware=hardware).build(BackendSpecs("x", 1, [backend_model()]))
    assert msgspec.json.decode(msgspec.json.encode(specs), type=OldSpecs).gpu_count == 1
    paused = msgspec.json.encode(NodeLoad(running=2, draining=True, paused="hot"))
    assert msgspec.json.decode(paused, type=OldLoad).draining
    assert isinstance(specs, NodeSpecs)
