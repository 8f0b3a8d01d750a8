"""What a node tells its owner about its models: their names in the network and what its prices keep from it.

Where it serves none, what is asked for.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from sparewatt.core.clock import Clock, Timer
from sparewatt.protocol.link.frames import AssignedName, ModelNames

WANTED_NAMED = 5
NOTHING_AFTER_S = 15.0
"""A node joins before it has looked at its model server: having no model is worth a sentence only after a while."""


class NameNotices:
    """One for all links: each process of a gateway says the same."""

    def __init__(self, notify: Callable[[str], None], *, clock: Clock) -> None:
        self._notify = notify
        self._clock = clock
        self._told: tuple[AssignedName, ...] | None = None
        self._timer: Timer | None = None
        self.prices: dict[str, str] = {}
        """By the server's id of a model, what its price keeps from the node."""

    def on_names(self, names: ModelNames) -> None:
        """Tell the owner what is new."""
        self._note_prices(names.models)
        names = msgspec.structs.replace(names, models=tuple(without_notice(model) for model in names.models))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if names.models == self._told:
            return
        if names.models:
            self._tell(names)
        else:
            self._timer = self._clock.call_later(NOTHING_AFTER_S, lambda: self._tell(names))

    def _note_prices(self, models: tuple[AssignedName, ...]) -> None:
        """The figures in a notice change all the time: the owner is told when there is one that was not there."""
        before, self.prices = self.prices, {each.served_as: each.price_notice for each in models if each.price_notice}
        for model, notice in self.prices.items():
            if model not in before:
                self._notify(f"{model}: {notice}")

    def _tell(self, names: ModelNames) -> None:
        self._told = names.models
        for sentence in name_sentences(names):
            self._notify(sentence)


def without_notice(model: AssignedName) -> AssignedName:
    return msgspec.structs.replace(model, price_notice=None)


def name_sentences(names: ModelNames) -> list[str]:
    served = [_described(model) for model in names.models if model.why is None]
    sentences = [f"serves {', '.join(served)}"] if served else ["serves no model of the network yet"]
    sentences += [f"{model.served_as} is called {model.name}: {model.why}" for model in names.models if model.why]
    if not served and names.wanted_models:
        sentences.append(f"asked for and served by nobody: {', '.join(names.wanted_models[:WANTED_NAMED])}")
    return sentences


def _described(model: AssignedName) -> str:
    return model.name if model.name == model.served_as else f"{model.name} ({model.served_as})"
