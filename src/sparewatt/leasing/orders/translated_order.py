"""An order out of another network's file: fields for the parser, and what was left out or means something else."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class TranslatedOrder:
    fields: dict[str, Any] = field(default_factory=dict)
    policy: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Said once."""
        if text not in self.notes:
            self.notes.append(text)

    def finish(self) -> TranslatedOrder:
        if self.policy:
            self.fields["policy"] = self.policy
        return self
