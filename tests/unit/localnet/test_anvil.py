"""The state file of a local chain: canonical blocks only, of a bounded size."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from sparewatt.localnet import anvil
from sparewatt.localnet.anvil import SAVE_BUSY_S, SAVE_QUIET_S, loadable_state, save_pause_s


def block(number: int, *, born: int = 1) -> dict[str, Any]:
    return {"header": {"number": hex(number), "timestamp": hex(born)}, "transactions": []}


def packed(*blocks: dict[str, Any]) -> bytes:
    return gzip.compress(json.dumps({"best_block_number": 1, "blocks": blocks, "accounts": {"0x1": {}}}).encode())


def written(data: bytes, canonical: dict[str, Any]) -> list[dict[str, Any]]:
    state = json.loads(loadable_state(data, canonical.get))
    assert state["accounts"] == {"0x1": {}}
    blocks: list[dict[str, Any]] = state["blocks"]
    return blocks


def test_of_several_first_blocks_the_canonical_one_is_written() -> None:
    canonical = {"0x0": {"number": "0x0", "timestamp": "0x2", "hash": "0xabc"}}
    assert written(packed(block(0, born=1), block(1), block(0, born=2), block(0, born=3)), canonical) == [
        block(1),
        block(0, born=2),
    ]


def test_a_dump_with_one_branch_stays_as_it_is() -> None:
    assert written(packed(block(1), block(0)), {}) == [block(1), block(0)]


def test_a_block_that_is_no_longer_canonical_is_left_out() -> None:
    assert written(packed(block(0), block(1, born=1), block(1, born=2)), {}) == [block(0)]


@pytest.mark.parametrize("text", ["[]", "{}", "{"])
def test_a_reply_that_is_no_state_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        loadable_state(gzip.compress(text.encode()), lambda _: None)


def test_a_chain_that_has_grown_too_large_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anvil, "CHAIN_STATE_BYTES_MAX", 10)
    with pytest.raises(ValueError, match="too large"):
        loadable_state(packed(block(0)), lambda _: None)


def test_a_chain_with_new_blocks_is_saved_soon_again_and_a_large_one_seldom() -> None:
    assert save_pause_s(is_new=True, took_s=0.001) == SAVE_BUSY_S
    assert save_pause_s(is_new=True, took_s=2.0) == 8.0
    assert save_pause_s(is_new=False, took_s=0.001) == SAVE_QUIET_S
