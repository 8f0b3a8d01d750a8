"""What hardware usually does: rough, but the same at every join."""

from __future__ import annotations

from typing import Any

import pytest

from sparewatt.node.hardware.gpu import Hardware
from sparewatt.node.measurement.expected_speed import expected_basis
from sparewatt.protocol.link.node_report import PriceBasis, validated
from tests.unit.node.rig import HARDWARE, backend_model

CPU = Hardware(gpu="cpu", gpu_count=0, vram_bytes=8 * 10**9, tflops=0.16)
EIGHT_B: dict[str, Any] = {"parameters": 8 * 10**9, "weights_bytes": 5 * 10**9}


def expected(
    hardware: Hardware = HARDWARE, *, copy_bytes_s: float | None = None, limit_tps: float | None = None, **model: Any
) -> PriceBasis:
    served = backend_model(**(EIGHT_B | model))
    basis = expected_basis(served, hardware, slots=8, copy_bytes_s=copy_bytes_s, limit_tps=limit_tps)
    assert basis is not None
    return basis


def test_a_card_is_expected_to_do_about_what_such_cards_do() -> None:
    """Eight at once of a quantized 8B model on an RTX 4090."""
    basis = expected()
    assert 300 < basis.completion_tps < 1500
    assert 800 < basis.prompt_tps < 10_000
    assert (basis.jobs, basis.source) == (8, "expected")


def test_a_processor_is_expected_to_be_much_slower() -> None:
    assert expected(CPU).completion_tps < expected().completion_tps / 50


def test_a_measured_bandwidth_counts_more_than_a_guess() -> None:
    assert expected(copy_bytes_s=4e12).completion_tps > expected().completion_tps


@pytest.mark.parametrize("known", [{"parameters": None}, {"weights_bytes": 0}])
def test_the_weights_or_the_parameters_are_enough(known: dict[str, Any]) -> None:
    assert expected(**known).completion_tps == pytest.approx(expected().completion_tps, rel=0.5)


def test_a_node_is_not_priced_beyond_its_owners_speed_limit() -> None:
    slow = expected(limit_tps=5.0)
    assert slow.completion_tps == slow.jobs * 5.0, "the limit is that of each answer"
    assert slow.prompt_tps == expected().prompt_tps
    assert expected(limit_tps=1e6) == expected(), "a limit that the machine does not reach changes nothing"


def test_nothing_is_expected_of_what_is_unknown() -> None:
    nothing = backend_model(parameters=None, weights_bytes=0)
    assert expected_basis(nothing, HARDWARE, slots=8, copy_bytes_s=None) is None
    unknown = Hardware(gpu="x", gpu_count=1, vram_bytes=1, tflops=0.0)
    assert expected_basis(backend_model(), unknown, slots=8, copy_bytes_s=4e12) is None


@pytest.mark.parametrize("parameters", [1, 10**15])
def test_absurd_models_make_no_absurd_basis(parameters: int) -> None:
    basis = expected(parameters=parameters, weights_bytes=1 << 49)
    assert validated(basis) == basis
