"""Counts the tokens of an answer as it passes through the node, for its receipt."""

from __future__ import annotations

from sparewatt.core.limits import REPLY_BODY_BYTES_MAX, SSE_EVENT_BYTES_MAX
from sparewatt.protocol.openai.chat import Usage, read_chunk, read_usage


class TokenCounter:
    """Feed it the reply. If the server counts tokens itself that counts; otherwise each chunk is a token."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._chunks = 0
        self._reported_tokens = 0
        self._closing_counts = 0
        self._is_whole = False
        self.prompt_tokens = 0
        self.first_token_at_s: float | None = None
        """Set by the job runner, which has the clock."""

    @property
    def completion_tokens(self) -> int:
        return self._reported_tokens or self._chunks

    @property
    def has_begun(self) -> bool:
        return self._chunks > 0

    def expect_whole(self) -> None:
        """The answer is one JSON object, not a stream."""
        self._is_whole = True

    def feed(self, data: bytes) -> None:
        if self._is_whole:
            self._rest += data[: REPLY_BODY_BYTES_MAX + 1 - len(self._rest)]
            return
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[:SSE_EVENT_BYTES_MAX]
        for line in lines:
            if line.startswith(b"data:"):
                self._read(bytes(line[5:]).strip())

    def end(self) -> None:
        """The reply is complete."""
        usage = read_usage(bytes(self._rest)) if self._is_whole else None
        if usage is not None:
            self.prompt_tokens, self._reported_tokens = usage.prompt_tokens, usage.completion_tokens

    def _read(self, data: bytes) -> None:
        chunk = read_chunk(data)
        if chunk is None:
            return
        self._chunks += chunk.carries_output()
        if chunk.usage is not None:
            self._read_usage(chunk.usage, is_closing=not chunk.choices or chunk.ends_text())

    def _read_usage(self, usage: Usage, *, is_closing: bool) -> None:
        """With `n` answers some servers count each separately, at the end; earlier counts are of all so far."""
        earlier = self._reported_tokens if is_closing and self._closing_counts else 0
        self._closing_counts += is_closing
        self.prompt_tokens = usage.prompt_tokens
        self._reported_tokens = usage.completion_tokens + earlier
