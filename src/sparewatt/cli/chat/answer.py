"""An answer of a model as it comes in: the events on the wire, what they add up to, and who sent it."""

from __future__ import annotations

from dataclasses import dataclass, field
from email.message import Message

import msgspec

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient, ErrorObject, path_of
from sparewatt.cli.errors import CliError

_NAME_TIMEOUT_S = 2.0


class Delta(msgspec.Struct):
    content: str | None = None


class Choice(msgspec.Struct):
    delta: Delta = msgspec.field(default_factory=Delta)
    finish_reason: str | None = None


class Usage(msgspec.Struct):
    completion_tokens: int | None = None
    cost: float | None = None
    """In dollars; a network that bills says it."""


class Chunk(msgspec.Struct):
    """One event of an answer: some text, the usage at the end, or an error in place of the rest."""

    choices: list[Choice] = []
    usage: Usage | None = None
    error: ErrorObject | None = None


@dataclass(frozen=True, slots=True)
class AnswerOrigin:
    """Where an answer came from, as its headers say; what they do not say is None."""

    node: str | None = None
    region: str | None = None
    attempts: int | None = None
    match_id: str | None = None

    @classmethod
    def from_headers(cls, headers: Message) -> AnswerOrigin:
        told = {name: headers.get(f"x-sparewatt-{name}") or None for name in ("node", "region", "attempts", "match-id")}
        attempts = told["attempts"]
        counted = int(attempts) if attempts and attempts.isdecimal() else None
        return cls(node=told["node"], region=told["region"], attempts=counted, match_id=told["match-id"])

    def as_json(self) -> dict[str, object]:
        """What `chat --json` adds to the completion. An answer in one piece has no first token."""
        return {
            "node": self.node,
            "region": self.region,
            "attempts": self.attempts,
            "match_id": self.match_id,
            "first_token_ms": None,
        }


@dataclass(slots=True)
class ChatAnswer:
    """An answer as it grows; complete or not, it can be described at any time."""

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
        """As the network counts them; until it says, the pieces that came."""
        return len(self.texts) if self.counted_tokens is None else self.counted_tokens

    @property
    def tokens_per_s(self) -> float | None:
        if self.first_token_s is None or self.last_token_s is None or self.last_token_s <= self.first_token_s:
            return None
        return (self.tokens - 1) / (self.last_token_s - self.first_token_s)

    def add(self, chunk: Chunk, *, now_s: float) -> str:
        """Take in one event; returns the text it brought."""
        if chunk.usage and chunk.usage.completion_tokens is not None:
            self.counted_tokens = chunk.usage.completion_tokens
            self.cost_usd = chunk.usage.cost
        if not chunk.choices:
            return ""
        choice = chunk.choices[0]
        self.finish_reason = choice.finish_reason or self.finish_reason
        return self._add_text(choice.delta.content or "", now_s=now_s)

    def _add_text(self, text: str, *, now_s: float) -> str:
        if text:
            self.first_token_s = now_s if self.first_token_s is None else self.first_token_s
            self.last_token_s = now_s
            self.texts.append(text)
        return text

    def summary(self, *, node_name: str | None = None) -> str:
        """Who answered, how fast, and under which id to ask why."""
        node = self.origin.node
        waited_ms = None if self.first_token_s is None else (self.first_token_s - self.asked_s) * 1000
        parts = [
            output.node_label(node, node_name) if node else "unknown node",
            self.origin.region or "unknown region",
            f"first token {output.format_ms(waited_ms)}",
            f"{output.format_rate(self.tokens_per_s)} tokens/s",
            f"{self.tokens} tokens",
            *([] if self.cost_usd is None else [output.format_usd(self.cost_usd)]),
            *self._remarks(),
            self.origin.match_id or "no match id",
        ]
        return " · ".join(parts)

    def _remarks(self) -> list[str]:
        attempts = self.origin.attempts or 1
        remarks = [f"{attempts} attempts"] if attempts > 1 else []
        return remarks + (["cut at the token limit"] if self.finish_reason == "length" else [])


class _Named(msgspec.Struct):
    name: str | None = None


class NodeNameCache:
    """What people call the nodes that answer; each is asked for once."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._names: dict[str, str | None] = {}

    def name_of(self, node: str) -> str | None:
        """None where the network does not say, or not soon: a name is a courtesy."""
        if node not in self._names:
            self._names[node] = self._ask(node)
        return self._names[node]

    def _ask(self, node: str) -> str | None:
        try:
            return self._client.get(path_of("nodes", node), timeout_s=_NAME_TIMEOUT_S).parse(_Named).name
        except CliError:
            return None
