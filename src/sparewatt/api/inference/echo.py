"""`echo` of a text completion: the prompt before its text. The gateway adds it, since not every model server does."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

_DATA, _END = b"data: ", b"\n\n"


class _Choice(msgspec.Struct, frozen=True):
    index: int = 0
    text: str | None = None


class _Reply(msgspec.Struct, frozen=True):
    choices: list[_Choice] = []


_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_reply_decoder = msgspec.json.Decoder(_Reply)
_choices_decoder = msgspec.json.Decoder(list[msgspec.Raw])


class Echo:
    """Implements ReplyFilter for one request. Each choice gets its prompt once: in the whole reply, or in its first
    piece of a stream.
    """

    def __init__(self, prompts: Sequence[str], *, answers: int) -> None:
        """`answers`: choices of each prompt."""
        self._pending = dict(enumerate(prompt for prompt in prompts for _ in range(answers)))
        """Prompts that were not written yet, by the index of their choice."""
        self._partial_event = b""

    def whole(self, body: bytes) -> bytes:
        return self._with_prompts(body)

    def feed(self, data: bytes) -> bytes:
        """Once every choice has its prompt, data is passed on unread."""
        if not self._pending:
            return self.rest() + data
        *events, self._partial_event = (self._partial_event + data).split(_END)
        return b"".join(self._rewrite_event(event) + _END for event in events)

    def rest(self) -> bytes:
        partial, self._partial_event = self._partial_event, b""
        return partial

    def _rewrite_event(self, event: bytes) -> bytes:
        if not event.startswith(_DATA + b"{"):
            return event
        try:
            return _DATA + self._with_prompts(event.removeprefix(_DATA))
        except ValueError:
            return event

    def _with_prompts(self, reply: bytes) -> bytes:
        """Raises ValueError if it is not a completion."""
        try:
            choices = _reply_decoder.decode(reply).choices
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(str(error)) from None
        if not any(choice.text is not None and choice.index in self._pending for choice in choices):
            return reply
        fields = _fields_decoder.decode(reply)
        pairs = zip(_choices_decoder.decode(fields["choices"]), choices, strict=True)
        rewritten = [self._with_prompt(raw, choice) for raw, choice in pairs]
        return msgspec.json.encode({**fields, "choices": rewritten})

    def _with_prompt(self, raw: msgspec.Raw, choice: _Choice) -> dict[str, object] | msgspec.Raw:
        if choice.text is None or choice.index not in self._pending:
            return raw
        return {**_fields_decoder.decode(raw), "text": self._pending.pop(choice.index) + choice.text}
