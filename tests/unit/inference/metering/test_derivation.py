"""Where a price comes from, in words that an owner can check with a pocket calculator."""

from __future__ import annotations

import msgspec
import pytest

from sparewatt.core.money import parse_usd, per_mtok
from sparewatt.inference.metering.derivation import derivation_of, is_paid_by_the_hour
from sparewatt.protocol.link.node_report import ModelReport, PriceBasis, Speed
from sparewatt.protocol.link.reference_load import reference_basis, reference_price

HOURLY = parse_usd("0.1")
SPEED = Speed(prefill_tps=2_000, decode_tps=21)
CURVE = Speed(prefill_tps=10_000, decode_tps=50, ttft_s=0.1, step_per_job_s=0.001)
BASIS = reference_basis(CURVE, slots=64)


def report(*, prompt: int, completion: int, speed: Speed | None, basis: PriceBasis | None = None) -> ModelReport:
    return ModelReport("m", "warm", 1, 1, prompt, completion, measured=speed, price_basis=basis)


def quoted(basis: PriceBasis, *, speed: Speed = CURVE, hourly: int = HOURLY) -> ModelReport:
    prompt, completion = reference_price(hourly, basis.prompt_tps), reference_price(hourly, basis.completion_tps)
    return report(prompt=prompt, completion=completion, speed=speed, basis=basis)


def test_an_hour_divided_by_the_speed_at_the_reference_load_is_shown() -> None:
    said = derivation_of(quoted(BASIS), hourly_price_nano=HOURLY)
    assert said.prompt == "$0.10/h ÷ 5,000 tok/s measured with 1,000 tokens = $0.0056 per 1M"
    assert said.completion == "$0.10/h ÷ 296 tok/s measured with 8 at once = $0.094 per 1M"


def test_a_server_with_one_slot_is_not_said_to_write_several_at_once() -> None:
    said = derivation_of(quoted(reference_basis(CURVE, slots=1)), hourly_price_nano=HOURLY)
    assert said.completion == "$0.10/h ÷ 50 tok/s measured = $0.56 per 1M"


def test_a_quote_stays_explained_after_the_curve_has_changed_a_little() -> None:
    faster = msgspec.structs.replace(CURVE, prefill_tps=15_000, decode_tps=70)
    assert derivation_of(quoted(BASIS, speed=faster), hourly_price_nano=HOURLY) == derivation_of(
        quoted(BASIS), hourly_price_nano=HOURLY
    )


@pytest.mark.parametrize("field", ["prompt_tps", "completion_tps"])
@pytest.mark.parametrize("factor", [0.4, 2.5])
def test_a_basis_far_from_the_reported_curve_is_the_owners_choice(field: str, factor: float) -> None:
    """Else a node could call any price measured."""
    invented = msgspec.structs.replace(BASIS, **{field: factor * getattr(BASIS, field)})
    said = derivation_of(quoted(invented), hourly_price_nano=HOURLY)._asdict()
    name = field.removesuffix("_tps")
    assert said.pop(name) == "set by the owner"
    assert all(text.startswith("$0.10/h") for text in said.values())


def test_a_price_by_what_such_hardware_does_is_called_expected() -> None:
    basis = PriceBasis(prompt_tps=100, completion_tps=10, jobs=4, source="expected")
    said = derivation_of(quoted(basis), hourly_price_nano=HOURLY)
    assert said.completion.startswith("$0.10/h ÷ 10 tok/s expected of such hardware")


def test_a_price_that_the_owner_set_is_called_so() -> None:
    model = msgspec.structs.replace(quoted(BASIS), completion_price_nano=parse_usd("2.5"))
    said = derivation_of(model, hourly_price_nano=HOURLY)
    assert said.completion == "set by the owner"
    assert said.prompt.startswith("$0.10/h")


def test_a_node_without_a_basis_divides_by_the_speeds_alone() -> None:
    model = report(prompt=per_mtok(HOURLY, 2_000), completion=per_mtok(HOURLY, 21), speed=SPEED)
    said = derivation_of(model, hourly_price_nano=HOURLY)
    assert said.completion == "$0.10/h ÷ 21 tok/s measured = $1.32 per 1M"
    assert said.prompt == "$0.10/h ÷ 2,000 tok/s measured = $0.0139 per 1M"


def test_before_anything_is_measured_there_is_nothing_to_divide_by() -> None:
    said = derivation_of(report(prompt=0, completion=0, speed=None), hourly_price_nano=1)
    assert said == ("not measured yet", "not measured yet")


@pytest.mark.parametrize(("hourly", "tps", "price"), [("0", 50.0, 0), ("3600", 1.0, 10**15), ("0.36", 100.0, 10**9)])
def test_a_price_per_million_is_the_hour_over_the_tokens_in_it(hourly: str, tps: float, price: int) -> None:
    assert per_mtok(parse_usd(hourly), tps) == price


BY_THE_HOUR = report(prompt=per_mtok(HOURLY, 2_000), completion=per_mtok(HOURLY, 21), speed=SPEED)
BY_THE_TOKEN = report(prompt=1, completion=2, speed=SPEED)
ONE_OF_EACH = report(prompt=per_mtok(HOURLY, 2_000), completion=2, speed=SPEED)
UNMEASURED = report(prompt=0, completion=0, speed=None)


@pytest.mark.parametrize(
    ("models", "is_by_the_hour"),
    [
        ([], True),
        ([BY_THE_HOUR], True),
        ([quoted(BASIS)], True),
        ([BY_THE_TOKEN], False),
        ([ONE_OF_EACH], True),
        ([BY_THE_TOKEN, BY_THE_HOUR], True),
        ([UNMEASURED], True),
        ([report(prompt=1, completion=2, speed=None)], False),
    ],
    ids=[
        "nothing yet",
        "hour",
        "reference load",
        "token",
        "one of each",
        "two models",
        "not measured",
        "set before it is measured",
    ],
)
def test_a_price_per_hour_counts_where_some_price_comes_from_it(
    models: list[ModelReport],
    is_by_the_hour: bool,  # noqa: FBT001
) -> None:
    assert is_paid_by_the_hour(models, hourly_price_nano=HOURLY) is is_by_the_hour
