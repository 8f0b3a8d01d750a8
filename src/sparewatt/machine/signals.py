"""Stop signals: the first one starts a clean shutdown, a second one exits at once.

SIGINT, SIGTERM and SIGHUP on Unix, Ctrl-C and Ctrl-Break on Windows, whose event loop cannot watch signals itself.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence

EXIT_INTERRUPTED = 130
STOP_SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGBREAK")


def stop_event(*, on_hangup: Callable[[], object] | None = None) -> asyncio.Event:
    """Set by the first stop signal. Call it once, in the main thread's event loop.

    With `on_hangup` SIGHUP calls that instead of stopping: a server that reloads its files.
    """
    stop = asyncio.Event()

    def on_stop() -> None:
        if stop.is_set():
            os._exit(EXIT_INTERRUPTED)  # children are tied to this process and end with it
        stop.set()

    loop = asyncio.get_running_loop()
    on_signals(on_stop, loop=loop)
    if on_hangup is not None:
        on_signals(on_hangup, loop=loop, names=("SIGHUP",))
    return stop


def on_signals(
    callback: Callable[[], object], *, loop: asyncio.AbstractEventLoop, names: Sequence[str] = STOP_SIGNALS
) -> None:
    """Call `callback` in the loop for each of these signals that the system has."""
    for number in [getattr(signal, name) for name in names if hasattr(signal, name)]:
        try:
            loop.add_signal_handler(number, callback)
        except NotImplementedError:  # Windows: the handler interrupts the main thread between two bytecodes
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(callback))
