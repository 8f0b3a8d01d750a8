"""The node's jobs and its picture of the model server, as what gives way to a lease."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sparewatt.node.jobs.job_runner import NodeJobRunner
from sparewatt.node.specs.inventory import Inventory


@dataclass(slots=True, kw_only=True)
class NodeInference:
    """Implements Inference. Both parts are made after the leases', so they are looked up when needed."""

    jobs: Callable[[], NodeJobRunner]
    inventory: Callable[[], Inventory]
    is_joined: Callable[[], bool]

    def is_serving(self) -> bool:
        return self.is_joined() and not self.jobs().load().draining and self.inventory().trouble is None

    def prices_of(self, model: str) -> tuple[int, int] | None:
        """Of a model, per million tokens read and written."""
        found = next((each for each in self.inventory().specs.models if each.id == model), None)
        return None if found is None else (found.prompt_price_nano, found.completion_price_nano)

    def stop_taking(self, order_id: str) -> None:
        self.jobs().leased = order_id
        self.inventory().rest()
        self.inventory().note_load_changed()

    def break_off(self, order_id: str) -> int:
        return self.jobs().break_off(order_id)

    def take_again(self) -> None:
        self.jobs().leased = None
        self.inventory().wake()
        self.inventory().note_load_changed()
