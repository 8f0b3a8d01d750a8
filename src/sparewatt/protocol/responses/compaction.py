"""Compaction of a conversation: the user's messages verbatim and a summary of the rest, in one encrypted item."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sparewatt.protocol.responses.input_items import NewId
from sparewatt.protocol.responses.request import Json

SUMMARY_PROMPT = (
    "Write down all of the conversation above that is needed to go on with it: what is wanted, what was decided, "
    "what was found and done, names, numbers and open ends. Be brief. Answer with nothing else."
)
_SEPARATOR = {"type": "input_text", "text": "\n\n"}


def compacted_items(items: Sequence[Json], summary: str, *, new_id: NewId) -> list[Json]:
    """One message of the user and one of the assistant: some chat templates require that the two alternate."""
    by_user: list[Json] = []
    for item in items:
        if item["type"] == "message" and item["role"] == "user":
            by_user += [_SEPARATOR, *item["content"]] if by_user else item["content"]
    text = {"type": "output_text", "text": summary, "annotations": []}
    messages = [("user", by_user)] if by_user else []
    return [
        {"id": new_id("msg"), "type": "message", "role": role, "status": "completed", "content": content}
        for role, content in (*messages, ("assistant", [text]))
    ]


def expanded_items(items: Sequence[Json], open_sealed: Callable[[str], list[Json]]) -> list[Json]:
    """The same items, with compactions replaced by their contents."""
    found: list[Json] = []
    for item in items:
        found += open_sealed(item["encrypted_content"]) if item["type"] == "compaction" else [item]
    return found
