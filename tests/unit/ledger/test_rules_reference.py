"""The page about money says what the code does."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from sparewatt.gateway.routes import make_app
from sparewatt.gateway.settings import GatewaySettings
from sparewatt.ledger.rules import INFERENCE_FEE_BPS, OUTPUT_TOKENS_DEFAULT
from tests.unit.gateway.small_gateway import make_services

PAGE = Path(__file__).parents[3].joinpath("docs/reference/money.md").read_text(encoding="utf-8")
DEFAULTS: dict[str, Any] = {field.name: field.default for field in fields(GatewaySettings)}


def test_the_fee_is_the_fee() -> None:
    assert f"rounded down | {INFERENCE_FEE_BPS / 100:g} % |" in PAGE


def test_an_answer_without_a_limit_is_as_long_as_the_page_says() -> None:
    assert f"an answer of {OUTPUT_TOKENS_DEFAULT:,} tokens" in PAGE


@pytest.mark.parametrize(("name", "documented"), re.findall(r"^\| `(\w+)` \| (\w+) \|", PAGE, re.MULTILINE))
def test_a_setting_has_the_default_that_the_page_says(name: str, documented: str) -> None:
    default = DEFAULTS[name]
    assert documented == (str(default).lower() if isinstance(default, bool) else f"{float(default):g}")


def test_every_route_about_money_is_on_the_page() -> None:
    paths = {resource.canonical for resource in make_app(make_services()).router.resources()}
    nouns = ("credits", "key", "usage", "generation", "earnings", "payouts", "treasury", "ledger")
    for path in sorted(path for path in paths if path.split("/")[2:3] and path.split("/")[2] in nouns):
        documented = path.replace("/v1/payouts/batches/{epoch}/proof", "/v1/payouts/batches/{n}/proof")
        assert documented.replace("/v1/payouts/batches/{epoch}", "…/{n}") in PAGE, path
