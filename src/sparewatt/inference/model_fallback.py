"""Fallback to another model: a request may name several, tried in order until one answers.

A model is given up only before anything of its answer was sent, and only for errors that say that its nodes cannot
serve the request; an error that another model would repeat goes to the client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sparewatt.core.errors import (
    FirstTokenTimeout,
    JobFailed,
    JobShed,
    ModelNotFound,
    NoMatch,
    QueueFull,
    SparewattError,
    UnsupportedContent,
    UnsupportedParameter,
)
from sparewatt.inference.dispatch.failure_reasons import ContextTooLong
from sparewatt.inference.dispatch.model import DirectPath, Sink

_OF_ONE_MODEL = (
    ContextTooLong,
    FirstTokenTimeout,
    JobFailed,
    JobShed,
    ModelNotFound,
    NoMatch,
    QueueFull,
    UnsupportedContent,
    UnsupportedParameter,
)


def is_of_one_model(error: SparewattError) -> bool:
    """Whether another model may do better."""
    return isinstance(error, _OF_ONE_MODEL)


class FallbackSink:
    """Implements Sink: passes a reply on, and offers each failure to whoever can try another model."""

    __slots__ = ("_sink", "_take_over")

    def __init__(self, sink: Sink, take_over: Callable[[SparewattError], bool]) -> None:
        """`take_over`: True if it tries another model, and the client must not see the error."""
        self._sink = sink
        self._take_over = take_over

    def start(self, headers: Mapping[str, str]) -> None:
        self._sink.start(headers)

    def data(self, data: bytes) -> None:
        self._sink.data(data)

    def direct_path(self) -> DirectPath | None:
        return self._sink.direct_path()

    def finish(self) -> None:
        self._sink.finish()

    def fail(self, error: SparewattError, headers: Mapping[str, str]) -> None:
        if not (is_of_one_model(error) and self._take_over(error)):
            self._sink.fail(error, headers)
