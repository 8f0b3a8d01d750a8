"""An answer of a model while it is streamed: its text, its speed, its cost, and which node wrote it."""

from __future__ import annotations

from dataclasses import dataclass, field
from email.message import Message

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient, path_of
from sparewatt.cli.errors import CliError
from sparewatt.protocol.api.inference import ChatChunk
from sparewatt.protocol.api.nodes import Node

_NAME_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class AnswerOrigin:
    """Where an answer came from, by the headers of the reply; None for each header that is missing."""

    node: str | None = None
    region: str | None = None
    attempts: int | None = None
    match_id: str | None = None

    @classmethod
    def from_headers(cls, headers: Message) -> AnswerOrigin:
        node, region, attempts, match_id = (
            headers.get(f"x-sparewatt-{name}") or None for name in ("node", "region", "attempts", "match-id")
        )
        return cls(node, region, int(attempts) if attempts and attempts.isdecimal() else None, match_id)

    def as_json(self) -> dict[str, object]:
        """What `chat --json` adds to the completion, which was not streamed and so has no first token."""
        return {
            "node": self.node,
            "region": self.region,
            "attempts": self.attempts,
            "match_id": self.match_id,
            "first_token_ms": None,
        }


@dataclass(slots=True)
class ChatAnswer:
    """An answer as it grows. It can be described at any time, complete or not."""

    asked_s: float
    texts: list[str] = field(default_factory=list)
    origin: AnswerOrigin = field(default_factory=AnswerOrigin)
    first_token_s: float | None = None
    last_token_s: float | None = None
    counted_tokens: int | None = None
    cost_usd: float | None = None
    finish_reason: str | None = None

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def tokens(self) -> int:
        """By the network's count; before the network reports it, the number of chunks."""
        return len(self.texts) if self.counted_tokens is None else self.counted_tokens

    @property
    def tokens_per_s(self) -> float | None:
        if self.first_token_s is None or self.last_token_s is None or self.last_token_s <= self.first_token_s:
            return None
        return (self.tokens - 1) / (self.last_token_s - self.first_token_s)

    def add(self, chunk: ChatChunk, *, now_s: float) -> str:
        """Add one event of the stream; returns its text."""
        if chunk.usage and chunk.usage.completion_tokens is not None:
            self.counted_tokens = chunk.usage.completion_tokens
            self.cost_usd = chunk.usage.cost
        if not chunk.choices:
            return ""
        choice = chunk.choices[0]
        self.finish_reason = choice.finish_reason or self.finish_reason
        text = choice.delta.content or ""
        if text:
            self.first_token_s = now_s if self.first_token_s is None else self.first_token_s
            self.last_token_s = now_s
            self.texts.append(text)
        return text

    def summary(self, *, node_name: str | None = None) -> str:
        """Which node answered, how fast, and the id of the match, with which 'match explain' says why."""
        node, attempts = self.origin.node, self.origin.attempts or 1
        waited_ms = None if self.first_token_s is None else (self.first_token_s - self.asked_s) * 1000
        parts = [
            output.node_label(node, node_name) if node else "unknown node",
            self.origin.region or "unknown region",
            f"first token {output.format_ms(waited_ms)}",
            f"{output.format_rate(self.tokens_per_s)} tokens/s",
            f"{self.tokens} tokens",
            *([] if self.cost_usd is None else [output.format_usd(self.cost_usd)]),
            *([f"{attempts} attempts"] if attempts > 1 else []),
            *(["cut at the token limit"] if self.finish_reason == "length" else []),
            self.origin.match_id or "no match id",
        ]
        return " · ".join(parts)


class NodeNameCache:
    """The names of the nodes that answered; each is requested once."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._names: dict[str, str | None] = {}

    def name_of(self, node: str) -> str | None:
        """None if the network does not tell it, or not soon: an answer is printed without it, too."""
        if node not in self._names:
            try:
                reply = self._client.get(path_of("nodes", node), timeout_s=_NAME_TIMEOUT_S)
                self._names[node] = reply.parse(Node).name
            except CliError:
                self._names[node] = None
        return self._names[node]
