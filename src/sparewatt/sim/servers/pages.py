"""The pages of one model server by path, as the real program of its kind would serve them.

A path that is not there is one that the program does not have. The simulator's nodes and the test engine report by
these pages, which the node's adapters read as they read those of real servers.
"""

from __future__ import annotations

from collections.abc import Callable

from sparewatt.sim.servers import llama_cpp_pages, ollama_pages, sglang_pages, vllm_pages
from sparewatt.sim.servers.facts import ServerKind, ServerLoad, ServerTruth

Pages = dict[str, bytes]

_STATIC: dict[ServerKind, Callable[[ServerTruth], Pages]] = {
    "vllm": vllm_pages.static_pages,
    "sglang": sglang_pages.static_pages,
    "llama.cpp": llama_cpp_pages.static_pages,
    "ollama": ollama_pages.static_pages,
}
_LIVE: dict[ServerKind, Callable[[ServerTruth, ServerLoad], Pages]] = {
    "vllm": vllm_pages.live_pages,
    "sglang": sglang_pages.live_pages,
    "llama.cpp": llama_cpp_pages.live_pages,
    "ollama": ollama_pages.live_pages,
}


def server_pages(facts: ServerTruth, load: ServerLoad) -> Pages:
    """All of them; Ollama's `/api/show` is the answer to a POST."""
    return static_pages(facts) | live_pages(facts, load)


def static_pages(facts: ServerTruth) -> Pages:
    """Those that stay the same while the server runs."""
    return _STATIC[facts.kind](facts)


def live_pages(facts: ServerTruth, load: ServerLoad) -> Pages:
    return _LIVE[facts.kind](facts, load)
