"""How our processes are asked to stop: the first signal ends cleanly, the second does not wait.

That is SIGINT, SIGTERM and SIGHUP on Unix; on Windows Ctrl-C and Ctrl-Break, whose event loop cannot listen for signals
itself.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

EXIT_INTERRUPTED = 130
NAMES = ("SIGTERM", "SIGINT", "SIGHUP", "SIGBREAK")
"""Those of them count that the system has."""


def stop_event() -> asyncio.Event:
    """Set by the first signal. Call it once, in the main thread's event loop."""
    stop = asyncio.Event()

    def received() -> None:
        if stop.is_set():
            os._exit(EXIT_INTERRUPTED)  # children are tied to our life and end with it
        stop.set()

    on_signals(received, loop=asyncio.get_running_loop())
    return stop


def on_signals(received: Callable[[], None], *, loop: asyncio.AbstractEventLoop) -> None:
    """Call `received` in the loop for each signal that asks us to stop."""
    for number in [getattr(signal, name) for name in NAMES if hasattr(signal, name)]:
        try:
            loop.add_signal_handler(number, received)
        except NotImplementedError:  # Windows: the handler runs between two steps of the main thread
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(received))
