"""How our processes are asked to stop: the first signal ends cleanly, the second does not wait.

That is SIGINT, SIGTERM and SIGHUP on Unix; on Windows Ctrl-C and Ctrl-Break, whose event loop cannot listen for signals
itself.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence

EXIT_INTERRUPTED = 130
STOP_SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGBREAK")
"""Those of them count that the system has."""


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
    on_signals(received, loop=loop)
    if on_hangup is not None:
        on_signals(on_hangup, loop=loop, names=("SIGHUP",))
    return stop


def on_signals(
    received: Callable[[], object], *, loop: asyncio.AbstractEventLoop, names: Sequence[str] = STOP_SIGNALS
) -> None:
    """Call `received` in the loop for each of these signals that the system has."""
    for number in [getattr(signal, name) for name in names if hasattr(signal, name)]:
        try:
            loop.add_signal_handler(number, received)
        except NotImplementedError:  # Windows: the handler runs between two steps of the main thread
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(received))
