"""What a kind of chain request needs to be sent: the calls of its next step, and what its events say of the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from sparewatt.evm.model import ContractCall
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.store.chain_requests import ChainRequestRow

NamedCall = tuple[str, ContractCall]
"""The call's part in its request (`permit`, `deposit`, …), and the call."""


@dataclass(frozen=True, slots=True)
class CallBatch:
    """The calls of one step, in order. They are sent by one key, so the chain has them in this order.

    A step succeeds with its last call. Without calls it is done at once.
    """

    calls: tuple[NamedCall, ...] = ()
    more_steps: bool = False
    """Whether the handler is asked for another step, once these calls are final."""
    wait_s: float = 0.0
    """More than 0: there is nothing to send yet; ask again after this time."""
    result: Mapping[str, Any] = field(default_factory=dict)
    """What the asker can know while it waits."""


class RequestHandler:
    """Makes the calls of one kind of request. A subclass implements `build_calls`."""

    result_events: ClassVar[Sequence[str]] = ()
    """The events that `read_result` reads, written `contract.event`."""

    async def build_calls(self, row: ChainRequestRow) -> CallBatch:
        """The calls of step `row.step`. Raises InvalidField if the request cannot be done.

        May be asked again for the same step, if the process ends before the calls are stored.
        """
        raise NotImplementedError

    def read_result(self, row: ChainRequestRow, events: Sequence[ChainEvent]) -> Mapping[str, Any]:
        """What the asker wants to know of the outcome; `events` are those of the request's transactions."""
        del row, events
        return {}
