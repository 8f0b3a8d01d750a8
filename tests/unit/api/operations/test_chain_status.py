"""GET /v1/chain: a chain that cannot be used is never shown as if all were well."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from aiohttp.test_utils import make_mocked_request

from sparewatt.accounts.principal import Principal
from sparewatt.api.endpoint import RequestLimiter
from sparewatt.api.operations.chain import ChainEndpoints, RpcRateLimit
from sparewatt.edge.middleware import CONTEXT
from sparewatt.store.chain import ChainIndexRow
from sparewatt.store.payouts import RootStatus
from sparewatt.testing.clocks import ManualClock

INDEX = ChainIndexRow(31337, bytes(32), {"token": "0x1"}, 1, 40, bytes(32), 41, 7)
OUTDATED = "The contracts in chain are of another release (escrow)."


@dataclass
class Progress:
    """How far index and outbox are."""

    trouble: str | None = None
    outbox: dict[str, int] = field(default_factory=lambda: {"final": 3})

    async def index(self) -> ChainIndexRow | None:
        return INDEX

    async def problem(self) -> str | None:
        return self.trouble

    async def count_events(self) -> int:
        return 5

    async def count_outbox(self) -> dict[str, int]:
        return self.outbox

    async def count_outbox_by_sender(self) -> dict[str, int]:
        return {"0xa": 0, "0xb": 2}


class Roots:
    async def root_status(self) -> RootStatus:
        return RootStatus(None, None, None, is_stopped=False)


class NoLimit:
    def charge(self, *_: object, **__: object) -> None: ...


class Operator:
    scopes = ("admin",)


async def show(trouble: str | None, *, chain_url: str | None = "http://127.0.0.1:1") -> Any:
    request = make_mocked_request("GET", "/v1/chain")
    request[CONTEXT] = cast(Any, None)
    endpoints = ChainEndpoints(
        limiter=cast(RequestLimiter, NoLimit()),
        store=Progress(trouble),
        payouts=Roots(),
        chain_url=chain_url,
        rate_limit=RpcRateLimit(ManualClock()),
    )
    return await endpoints.show_chain(request, cast(Principal, Operator()))


@pytest.mark.parametrize("trouble", [None, OUTDATED])
async def test_contracts_of_another_release_are_told_in_the_note(trouble: str | None) -> None:
    shown = await show(trouble)
    assert (shown.note, shown.indexed_block, shown.events) == (trouble, 40, 5)


async def test_each_sending_key_is_shown_with_what_it_has_under_way() -> None:
    assert (await show(None)).senders == {"0xa": 0, "0xb": 2}


async def test_a_network_without_a_chain_says_so_first() -> None:
    assert "this network has none" in (await show(OUTDATED, chain_url=None)).note
