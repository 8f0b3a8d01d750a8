"""Calls to the chain's node are counted by method, also those that fail."""

from __future__ import annotations

import pytest

from sparewatt.core.errors import ChainUnavailable
from sparewatt.testing.clocks import ManualClock
from sparewatt.validator.rpc_meter import METHODS_MAX, MeteredRpcClient, MethodUse


class SlowTransport:
    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.answer = b'{"result":"0x1"}'

    async def post(self, body: bytes) -> bytes:
        assert body
        self.clock.advance(0.25)
        return self.answer


async def test_calls_are_counted_with_their_time() -> None:
    clock = ManualClock()
    client = MeteredRpcClient(SlowTransport(clock), clock)
    assert [await client.call(str, "eth_chainId") for _ in range(2)] == ["0x1", "0x1"]
    use = client.uses["eth_chainId"]
    assert (use.count, use.total_s) == (2, 0.5)


async def test_two_clients_count_together_and_failures_count() -> None:
    clock, uses = ManualClock(), dict[str, MethodUse]()
    transport = SlowTransport(clock)
    transport.answer = b"no json"
    for _ in range(2):
        with pytest.raises(ChainUnavailable):
            await MeteredRpcClient(transport, clock, tries=1, uses=uses).call(str, "eth_call")
    assert uses["eth_call"].count == 2


async def test_methods_are_bounded() -> None:
    clock = ManualClock()
    client = MeteredRpcClient(SlowTransport(clock), clock)
    for number in range(METHODS_MAX + 5):
        await client.call(str, f"method_{number}")
    await client.call(str, "method_0")
    assert len(client.uses) == METHODS_MAX
    assert client.uses["method_0"].count == 2
