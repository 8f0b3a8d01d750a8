"""Which key sends a request's calls: one line per situation."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sparewatt.chain.client import ChainClient
from sparewatt.chain.senders import (
    GAS_PER_REQUEST,
    STUCK_S,
    SenderLoad,
    SenderPool,
    choose_sender,
    senders_to_relieve,
    with_calls,
)
from sparewatt.evm.model import GasFees
from sparewatt.store.chain import ChainStore

A, B, C = ("0x" + letter * 40 for letter in "abc")
IDLE, BUSY = SenderLoad(A, 0, 0.0), SenderLoad(B, 7, 3.0)
STUCK, POOR = SenderLoad(A, 0, STUCK_S + 1), SenderLoad(A, 0, 0.0, can_pay=False)

CHOICES = [
    ("the one with the fewest calls", [BUSY, IDLE], A),
    ("the first of equals", [SenderLoad(C, 2, 0.0), SenderLoad(B, 2, 0.0)], C),
    ("a busy one rather than one that is stuck", [STUCK, BUSY], B),
    ("a busy one rather than one without gas", [POOR, BUSY], B),
    ("a stuck one rather than one without gas", [POOR, SenderLoad(B, 3, STUCK_S + 9)], B),
    ("the only one, whatever it is", [STUCK], A),
    ("exactly at the limit it is not stuck", [SenderLoad(A, 0, STUCK_S), BUSY], A),
]


@pytest.mark.parametrize(("loads", "chosen"), [each[1:] for each in CHOICES], ids=[each[0] for each in CHOICES])
def test_the_choice(loads: list[SenderLoad], chosen: str) -> None:
    assert choose_sender(loads) == chosen


def test_requests_chosen_one_after_the_other_are_spread_over_the_keys() -> None:
    loads, chosen = [SenderLoad(each, 0, 0.0) for each in (A, B, C)], []
    for _ in range(6):
        chosen.append(choose_sender(loads))
        loads = with_calls(loads, chosen[-1], 3)
    assert chosen == [A, B, C, A, B, C]
    assert [load.open_calls for load in loads] == [6, 6, 6]


RELIEVED = [
    ("a stuck one", [STUCK, BUSY], [A]),
    ("one without gas", [POOR, BUSY], [A]),
    ("none, if all are fit", [IDLE, BUSY], []),
    ("none, if there is no better one", [STUCK, SenderLoad(B, 1, 0.0, can_pay=False)], []),
]


@pytest.mark.parametrize(("loads", "relieved"), [each[1:] for each in RELIEVED], ids=[each[0] for each in RELIEVED])
def test_the_keys_that_are_relieved(loads: list[SenderLoad], relieved: list[str]) -> None:
    assert senders_to_relieve(loads) == relieved


class PricedNode(ChainClient):
    def __init__(self, max_wei: int, balances: dict[str, int]) -> None:
        self.max_wei, self.balances = max_wei, balances

    async def fees(self) -> GasFees:
        return GasFees(self.max_wei, 0)

    async def balance(self, address: str) -> int:
        return self.balances[address]


class LoadStore(ChainStore):
    """Two requests wait at `A`; one of them is signed before it can be moved."""

    def __init__(self) -> None:
        self.moved: list[tuple[str, str]] = []
        self.staying: list[str] = []

    async def sender_loads(self, senders: Sequence[str]) -> dict[str, tuple[int, float]]:
        return {A: (4, STUCK_S + 1)}

    async def has_waiting_requests(self) -> bool:
        return True

    async def list_movable_requests(self, staying: Sequence[str], *, limit: int) -> list[tuple[str, int]]:
        self.staying = list(staying)
        return [("signed meanwhile", 3), ("waits", 3), ("waits too", 1)]

    async def move_request(self, request_id: str, *, to: str) -> bool:
        if request_id != "signed meanwhile":
            self.moved.append((request_id, to))
        return request_id != "signed meanwhile"


async def test_where_gas_is_free_every_key_can_pay() -> None:
    loads = await SenderPool(PricedNode(0, {}), LoadStore(), (A, B)).loads()
    assert [(load.address, load.open_calls, load.can_pay) for load in loads] == [(A, 4, True), (B, 0, True)]


async def test_a_key_that_cannot_pay_a_whole_request_is_not_fit() -> None:
    enough = GAS_PER_REQUEST * 5
    loads = await SenderPool(PricedNode(5, {A: enough, B: enough - 1}), LoadStore(), (A, B)).loads()
    assert [load.can_pay for load in loads] == [True, False]


async def test_waiting_requests_leave_a_stuck_key_for_the_others_in_turn() -> None:
    store = LoadStore()
    await SenderPool(PricedNode(0, {}), store, (A, B, C)).relieve()
    assert store.staying == [B, C]
    assert store.moved == [("waits", B), ("waits too", C)]
