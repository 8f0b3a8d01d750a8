"""How our processes are asked to stop: the first SIGINT, SIGTERM or SIGHUP ends cleanly, the second does not wait."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable

EXIT_INTERRUPTED = 130


def stop_event(*, on_hangup: Callable[[], object] | None = None) -> asyncio.Event:
    """Set by the first signal. Call it once, in the main thread's event loop.

    With `on_hangup` SIGHUP calls that instead, as servers do that read something again.
    """
    stop = asyncio.Event()

    def received() -> None:
        if stop.is_set():
            os._exit(EXIT_INTERRUPTED)  # children are tied to our life and end with it
        stop.set()

    loop = asyncio.get_running_loop()
    if sys.platform == "win32":  # its loops know no signals; Ctrl-C and Ctrl-Break are all there is
        for number in (signal.SIGINT, signal.SIGBREAK):
            signal.signal(number, lambda _number, _frame: loop.call_soon_threadsafe(received))
        return stop
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, received)
    if on_hangup is not None:
        loop.add_signal_handler(signal.SIGHUP, on_hangup)
    return stop
