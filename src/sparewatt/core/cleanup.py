"""Undo a step that failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def on_failure(undo: Callable[..., object], *args: object) -> Iterator[None]:
    """Call `undo` if the block does not end well, cancellation included. The error passes on."""
    with ExitStack() as stack:
        stack.callback(undo, *args)
        yield
        stack.pop_all()
