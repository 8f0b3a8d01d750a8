"""What a node tells its owner about names: which models of the network it serves, and what is asked for. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from sparewatt.protocol.link.frames import AssignedName, Welcome

WANTED_NAMED = 5


def name_sentences(welcome: Welcome, *, has_models: bool) -> list[str]:
    """`has_models`: whether the node has reported any. An older gateway says nothing, and then neither does this."""
    if has_models and not welcome.models:
        return []
    served = [model for model in welcome.models if model.why is None]
    sentences = [f"serves {_listed(served)}"] if served else ["serves no model of the network yet"]
    sentences += [f"{model.served_as} is called {model.name}: {model.why}" for model in welcome.models if model.why]
    if not served and welcome.wanted_models:
        sentences.append(f"asked for and served by nobody: {', '.join(welcome.wanted_models[:WANTED_NAMED])}")
    return sentences


def _listed(models: list[AssignedName]) -> str:
    return ", ".join(_named(models))


def _named(models: list[AssignedName]) -> Iterator[str]:
    for model in models:
        yield model.name if model.name == model.served_as else f"{model.name} ({model.served_as})"
