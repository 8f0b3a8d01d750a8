"""Who is shown every whole answer of a node."""

from __future__ import annotations

from typing import Protocol

from sparewatt.inference.dispatch.attempt import Attempt
from sparewatt.inference.dispatch.model import AttemptRecord, Job


class AnswerObserver(Protocol):
    """Is called on the request path: it must be cheap."""

    def on_answer(self, job: Job, record: AttemptRecord, attempt: Attempt, data: bytes) -> None:
        """`data`: the reply, if it is not streamed."""
        ...
