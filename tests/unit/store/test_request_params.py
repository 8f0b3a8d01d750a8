"""The parameters of chain requests as JSON."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from sparewatt.core.ids import NodeId
from sparewatt.protocol.contracts.match import OrderTerms
from sparewatt.store.request_params import (
    PARAMS_OF,
    ChainRequestKind,
    ClaimParams,
    LeaseParams,
    OrderParams,
    ProviderParams,
    RegisterParams,
    ReopenParams,
    RequestParams,
    StatusParams,
    UpdateParams,
    decode_params,
    encode_params,
)

HASH, HERS = "0x" + "ab" * 32, "0x" + "cd" * 20
MASK, SMALL, SHORT, WORD = 2**256 - 1, 2**8 - 1, 2**16 - 1, 2**32 - 1
WIDEST = OrderTerms(
    countries=MASK,
    tiers=MASK,
    gpu_models=MASK,
    min_gpu_class=SMALL,
    min_vram_gb=SHORT,
    gpu_units=SHORT,
    compliance=MASK,
    min_uptime_ppm=WORD,
    min_reputation_ppm=WORD,
    max_price_uusd=2**64 - 1,
    latency_value=WORD,
    rtt_row=b"\xff" * 32,
    payment_rule=SMALL,
    commit_ms=WORD,
    reveal_ms=WORD,
    start_s=WORD,
    standin_s=WORD,
    down_s=WORD,
    reclaim_s=WORD,
    empty_grace_s=WORD,
    duration_s=WORD,
    only=(HERS,) * 8,
    ignore=(HERS,) * 8,
)
EXAMPLES = {
    ChainRequestKind.CLAIM: ClaimParams(7),
    ChainRequestKind.ORDER: OrderParams(WIDEST, HASH, 2**40, 16),
    ChainRequestKind.REOPEN: ReopenParams(HASH, WIDEST),
    ChainRequestKind.CANCEL: LeaseParams(HASH),
    ChainRequestKind.PAUSE: LeaseParams(HASH),
    ChainRequestKind.RESUME: LeaseParams(HASH),
    ChainRequestKind.CLOSE: LeaseParams(HASH),
    ChainRequestKind.TOP_UP: LeaseParams(HASH),
    ChainRequestKind.UPDATE: UpdateParams(HASH, HASH, 2**63, 86_400, 3),
    ChainRequestKind.REGISTER: RegisterParams(NodeId(HERS), 1, 2, 3, 4, 24, 5, 6, HASH, HERS, "0x" + "ee" * 65),
    ChainRequestKind.BOND: ProviderParams(HERS),
    ChainRequestKind.UNBOND: ProviderParams(HERS),
    ChainRequestKind.STATUS: StatusParams(HERS, 2),
}


def test_every_kind_has_its_params() -> None:
    assert set(PARAMS_OF) == set(ChainRequestKind)


@pytest.mark.parametrize("kind", EXAMPLES)
def test_what_is_stored_is_what_is_read(kind: ChainRequestKind) -> None:
    """Numbers of 256 bits too: JSON has no limit, and jsonb keeps every digit."""
    assert decode_params(kind, encode_params(kind, EXAMPLES[kind])) == EXAMPLES[kind]


def test_params_of_another_kind_are_a_mistake_of_ours() -> None:
    with pytest.raises(ValueError, match="order has OrderParams, not ClaimParams"):
        encode_params(ChainRequestKind.ORDER, ClaimParams(1))


def test_params_that_are_too_long_are_refused() -> None:
    with pytest.raises(ValueError, match="at most"):
        encode_params(ChainRequestKind.ORDER, OrderParams(replace(WIDEST, only=(HERS,) * 200), HASH, 1, 1))


@pytest.mark.parametrize(
    "text", ['{"epoch":"one"}', "{}", '{"epoch":1,"more":2}', "[]"], ids=["another type", "missing", "unknown", "list"]
)
def test_what_another_release_wrote_is_none(text: str) -> None:
    assert decode_params(ChainRequestKind.CLAIM, text) is None


@pytest.mark.parametrize("order_id", ["0x" + "AB" * 32, "0x" + "ab" * 31, "ab" * 32, "0x" + "ab" * 32 + "\n"])
def test_an_id_that_is_no_hash_is_not_read(order_id: str) -> None:
    assert decode_params(ChainRequestKind.CANCEL, msgspec.json.encode({"order_id": order_id}).decode()) is None


def test_a_request_that_needs_nothing_more_has_an_empty_object() -> None:
    assert encode_params(ChainRequestKind.DEPOSIT, RequestParams()) == "{}"
