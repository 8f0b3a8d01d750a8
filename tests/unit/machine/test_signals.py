from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from sparewatt.machine.signals import on_signals
from tests.waiting import until


class WindowsLoop:
    """An event loop that cannot watch signals, as on Windows; all other calls go to the real loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def add_signal_handler(self, number: int, received: Callable[[], None]) -> None:
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)


@pytest.mark.parametrize("system", ["unix", "windows"])
async def test_a_signal_calls_back_in_the_loop(system: str) -> None:
    loop, calls = asyncio.get_running_loop(), list[int]()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        on_signals(lambda: calls.append(1), loop=loop if system == "unix" else WindowsLoop(loop))  # type: ignore[arg-type]
        os.kill(os.getpid(), signal.SIGTERM)
        await until(lambda: bool(calls))
        assert calls == [1]
    finally:
        for number, handler in before.items():
            if system == "unix":
                loop.remove_signal_handler(number)
            signal.signal(number, handler)
