from __future__ import annotations

import msgspec
import pytest

from sparewatt.leasing.claims import claims_of
from sparewatt.policy.market_ids import COUNTRY_ID, GPU_MODEL_ID, OTHER_GPU
from sparewatt.policy.zones import ZONES_MAX
from tests.unit.protocol.reports import SPECS


def test_claims_are_ids_of_the_markets_tables() -> None:
    claims = claims_of(msgspec.structs.replace(SPECS, region="de-berlin", gpu="NVIDIA GeForce RTX 4090", gpu_count=2))
    assert (claims.country, claims.gpu_model, claims.gpu_units) == (COUNTRY_ID["DE"], GPU_MODEL_ID["rtx-4090"], 2)
    assert 0 < claims.zone < ZONES_MAX
    assert claims.price_hint_uusd == SPECS.hourly_price_nano // 1_000


@pytest.mark.parametrize(
    ("gpu", "count", "model"),
    [("none", 0, 0), ("RTX 4090", 0, 0), ("none", 1, OTHER_GPU), ("a card nobody knows", 4, OTHER_GPU)],
)
def test_a_model_is_claimed_exactly_with_gpus(gpu: str, count: int, model: int) -> None:
    """As the registry demands: what a node says of itself must not make its registration fail."""
    claims = claims_of(msgspec.structs.replace(SPECS, gpu=gpu, gpu_count=count))
    assert (claims.gpu_model, claims.gpu_units) == (model, count)


def test_a_place_that_nobody_knows_is_claimed_as_unknown() -> None:
    claims = claims_of(msgspec.structs.replace(SPECS, region="the attic"))
    assert (claims.country, claims.zone) == (0, 0)
