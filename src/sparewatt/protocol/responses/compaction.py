"""A conversation in short: what the user said, word for word, and a summary of the rest, all in one sealed item."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sparewatt.protocol.responses.input_items import NewId
from sparewatt.protocol.responses.request import Json

SUMMARY_PROMPT = (
    "Write down all of the conversation above that is needed to go on with it: what is wanted, what was decided, "
    "what was found and done, names, numbers and open ends. Be brief. Answer with nothing else."
)
_BETWEEN = {"type": "input_text", "text": "\n\n"}


def compacted_items(items: Sequence[Json], summary: str, *, new_id: NewId) -> list[Json]:
    """As one message of the user and one of the assistant: templates may insist that they take turns."""
    said: list[Json] = []
    for item in items:
        if item["type"] == "message" and item["role"] == "user":
            said += [_BETWEEN, *item["content"]] if said else item["content"]
    text = {"type": "output_text", "text": summary, "annotations": []}
    messages = [("user", said)] if said else []
    return [
        {"id": new_id("msg"), "type": "message", "role": role, "status": "completed", "content": content}
        for role, content in (*messages, ("assistant", [text]))
    ]


def expanded_items(items: Sequence[Json], open_sealed: Callable[[str], list[Json]]) -> list[Json]:
    """The same items, with what was in compactions in their place."""
    found: list[Json] = []
    for item in items:
        found += open_sealed(item["encrypted_content"]) if item["type"] == "compaction" else [item]
    return found
