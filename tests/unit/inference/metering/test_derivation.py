"""Where a price comes from, in words that an owner can check with a pocket calculator."""

from __future__ import annotations

import pytest

from sparewatt.core.money import parse_usd, per_mtok
from sparewatt.inference.metering.derivation import derivation_of, is_paid_by_the_hour
from sparewatt.protocol.link.node_report import ModelReport, Speed


def report(*, prompt: int, completion: int, speed: Speed | None) -> ModelReport:
    return ModelReport("m", "warm", 1, 1, prompt, completion, measured=speed)


def test_an_hour_divided_by_the_measured_speed_is_shown() -> None:
    hourly, speed = parse_usd("0.1"), Speed(prefill_tps=2_000, decode_tps=21)
    model = report(prompt=per_mtok(hourly, 2_000), completion=per_mtok(hourly, 21), speed=speed)
    said = derivation_of(model, hourly_price_nano=hourly)
    assert said.completion == "$0.10/h ÷ 21 tok/s measured = $1.32 per 1M"
    assert said.prompt == "$0.10/h ÷ 2,000 tok/s measured = $0.0139 per 1M"


def test_a_price_that_the_owner_set_is_called_so() -> None:
    hourly, speed = parse_usd("0.1"), Speed(prefill_tps=2_000, decode_tps=21)
    model = report(prompt=per_mtok(hourly, 2_000), completion=parse_usd("2.5"), speed=speed)
    said = derivation_of(model, hourly_price_nano=hourly)
    assert said.completion == "set by the owner"
    assert said.prompt.startswith("$0.10/h")


def test_before_anything_is_measured_there_is_nothing_to_divide_by() -> None:
    said = derivation_of(report(prompt=0, completion=0, speed=None), hourly_price_nano=1)
    assert said == ("not measured yet", "not measured yet")


@pytest.mark.parametrize(("hourly", "tps", "price"), [("0", 50.0, 0), ("3600", 1.0, 10**15), ("0.36", 100.0, 10**9)])
def test_a_price_per_million_is_the_hour_over_the_tokens_in_it(hourly: str, tps: float, price: int) -> None:
    assert per_mtok(parse_usd(hourly), tps) == price


SPEED = Speed(prefill_tps=2_000, decode_tps=21)
HOURLY = parse_usd("0.1")
BY_THE_HOUR = report(prompt=per_mtok(HOURLY, 2_000), completion=per_mtok(HOURLY, 21), speed=SPEED)
BY_THE_TOKEN = report(prompt=1, completion=2, speed=SPEED)
ONE_OF_EACH = report(prompt=per_mtok(HOURLY, 2_000), completion=2, speed=SPEED)
UNMEASURED = report(prompt=0, completion=0, speed=None)


@pytest.mark.parametrize(
    ("models", "is_by_the_hour"),
    [
        ([], True),
        ([BY_THE_HOUR], True),
        ([BY_THE_TOKEN], False),
        ([ONE_OF_EACH], True),
        ([BY_THE_TOKEN, BY_THE_HOUR], True),
        ([UNMEASURED], True),
        ([report(prompt=1, completion=2, speed=None)], False),
    ],
    ids=["nothing yet", "hour", "token", "one of each", "two models", "not measured", "set before it is measured"],
)
def test_a_price_per_hour_counts_where_some_price_comes_from_it(
    models: list[ModelReport],
    is_by_the_hour: bool,  # noqa: FBT001
) -> None:
    assert is_paid_by_the_hour(models, hourly_price_nano=HOURLY) is is_by_the_hour
