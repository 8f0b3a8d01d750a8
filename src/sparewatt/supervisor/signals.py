"""How our processes are asked to stop: the first SIGINT, SIGTERM or SIGHUP ends cleanly, the second does not wait."""

from __future__ import annotations

import asyncio
import os
import signal

EXIT_INTERRUPTED = 130


def stop_event() -> asyncio.Event:
    """Set by the first signal. Call it once, in the main thread's event loop."""
    stop = asyncio.Event()

    def received() -> None:
        if stop.is_set():
            os._exit(EXIT_INTERRUPTED)  # children are tied to our life and end with it
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, received)
    return stop
