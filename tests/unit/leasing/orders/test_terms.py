from __future__ import annotations

from typing import Any

import pytest

from sparewatt.core.errors import BadRequest, InvalidField, UnsupportedParameter
from sparewatt.leasing.orders.terms import (
    FURTHER_ATTEMPTS,
    LOCAL_TIMES,
    PUBLIC_TIMES,
    RECLAIM_S,
    attempts_of,
    filters_of,
    specification_of,
    terms_of,
    times_of,
)
from sparewatt.policy.market_ids import COUNTRY_ID, GPU_MODEL_ID
from sparewatt.protocol.contracts.lease_content import content_hash_of, read_content
from sparewatt.protocol.contracts.message_ranges import require_in_range
from sparewatt.protocol.typed_message import struct_hash
from tests.unit.leasing.orders.samples import address, order


def test_the_policy_and_the_networks_times_become_terms() -> None:
    asked = order(
        policy={"region": ["DE"], "gpu": ["a100"], "only": [address(7)]}, resources={"gpus": 2}, duration="2h"
    )
    terms = terms_of(asked, max_price_uusd=1_500_000, times=LOCAL_TIMES)
    assert (terms.countries, terms.gpu_models) == (1 << COUNTRY_ID["DE"], 1 << GPU_MODEL_ID["a100"])
    assert (terms.gpu_units, terms.max_price_uusd, terms.duration_s) == (2, 1_500_000, 7_200)
    assert (terms.commit_ms, terms.start_s, terms.reclaim_s) == (800, 30, RECLAIM_S)
    assert terms.only == (address(7),)


@pytest.mark.parametrize("times", [LOCAL_TIMES, PUBLIC_TIMES])
def test_the_networks_times_are_within_the_protocols_ranges(times: Any) -> None:
    require_in_range(terms_of(order(), max_price_uusd=1, times=times))


def test_a_development_chain_has_the_short_times() -> None:
    assert times_of(31337) is LOCAL_TIMES
    assert times_of(1) is PUBLIC_TIMES


@pytest.mark.parametrize(
    ("policy", "name"),
    [
        ({"min_throughput": 10}, "min_throughput"),
        ({"sort": "price"}, "sort"),
        ({"weights": {"price": 1}}, "weights"),
        ({"max_price": 1}, "max_price"),
        ({"max_ttft_ms": 500}, "max_ttft_ms"),
        ({"data_policy": "no_log"}, "data_policy"),
        ({"order": ["a"]}, "order"),
    ],
)
def test_what_an_order_on_chain_cannot_hold_is_refused_by_name(policy: dict[str, Any], name: str) -> None:
    with pytest.raises(UnsupportedParameter, match=f"'{name}'") as caught:
        filters_of(order(policy=policy))
    assert caught.value.param == name


def test_a_price_of_answers_is_refused_with_the_price_of_leases() -> None:
    with pytest.raises(UnsupportedParameter, match="or say 'max_hourly'"):
        filters_of(order(policy={"max_price": 3}))


def test_an_order_without_gpus_refuses_conditions_on_them() -> None:
    assert filters_of(order(resources={"gpus": 0})).gpu_units == 0
    with pytest.raises(BadRequest, match="0 GPUs"):
        filters_of(order(resources={"gpus": 0}, policy={"gpu": ["a100"]}))


def test_a_price_beyond_the_protocol_is_refused() -> None:
    with pytest.raises(InvalidField, match="max_price_uusd"):
        terms_of(order(), max_price_uusd=1 << 40, times=LOCAL_TIMES)


def test_the_specification_has_the_hash_of_the_document() -> None:
    written = specification_of(order(env={"A": "1"}, secrets=["T", "U"], resources={"gpus": 0}, egress="none"))
    spec = written.specification
    assert spec.content_hash == content_hash_of(written.content)
    assert read_content(written.content).env == {"A": "1"}
    assert (spec.gpus, spec.cpu_milli, spec.egress, spec.secrets) == (0, 1_000, 0, 2)
    assert written.spec_hash == f"0x{struct_hash(spec).hex()}"
    other = specification_of(order(env={"A": "2"}, secrets=["T", "U"], resources={"gpus": 0}, egress="none"))
    assert other.spec_hash != written.spec_hash


def test_a_document_that_is_too_large_is_refused() -> None:
    with pytest.raises(InvalidField, match="65,536 are allowed"):
        specification_of(order(env={f"A{number}": "x" * 16_000 for number in range(5)}))


def test_an_order_with_secrets_is_reopened_by_its_renter_only() -> None:
    assert attempts_of(order()) == FURTHER_ATTEMPTS
    assert attempts_of(order(secrets=["T"])) == 0
