"""What a gateway rewrites in the replies of text completions: the prompt of `echo`, and the shape of log probabilities.

A filter is of one request.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sparewatt.api.inference.reply_rewriter import ReplyRewriter, decoded

_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_choices_decoder = msgspec.json.Decoder(list[msgspec.Raw])


# echo


class _Choice(msgspec.Struct, frozen=True):
    index: int = 0
    text: str | None = None


class _Reply(msgspec.Struct, frozen=True):
    choices: list[_Choice] = []


_reply_decoder = msgspec.json.Decoder(_Reply)


class Echo(ReplyRewriter):
    """Each choice gets its prompt once; of a stream, in its first piece."""

    def __init__(self, prompts: Sequence[str], *, answers: int) -> None:
        """`answers`: choices of each prompt."""
        super().__init__()
        self._pending = dict(enumerate(prompt for prompt in prompts for _ in range(answers)))
        """Prompts that were not written yet, by the index of their choice."""

    @property
    def is_done(self) -> bool:
        return not self._pending

    def rewrite(self, reply: bytes) -> bytes:
        choices = decoded(_reply_decoder, reply).choices
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


# log probabilities


class _RankedToken(msgspec.Struct, frozen=True):
    token: str = ""
    logprob: float = 0.0


class _ChatToken(_RankedToken, frozen=True):
    top_logprobs: list[_RankedToken] | None = None


class _Logprobs(msgspec.Struct, frozen=True):
    """In the shape of chats, which llama.cpp has for texts too, or in that of texts."""

    content: list[_ChatToken] | None = None
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float] | None] | None = None
    text_offset: list[int] | None = None


class _ScoredChoice(_Choice, frozen=True):
    logprobs: _Logprobs | None = None


class _ScoredReply(msgspec.Struct, frozen=True):
    choices: list[_ScoredChoice] = []


_scored_decoder = msgspec.json.Decoder(_ScoredReply)


class TextLogprobs(ReplyRewriter):
    """Four lists of equal length, in place of whatever shape a server has."""

    def __init__(self, top: int) -> None:
        """`top`: as many of the likeliest tokens as were asked for."""
        super().__init__()
        self._top = top
        self._chars: dict[int, int] = {}
        """Characters of each choice so far: offsets go on over the events of a stream."""

    def rewrite(self, reply: bytes) -> bytes:
        choices = decoded(_scored_decoder, reply).choices
        if not choices:
            return reply
        fields = _fields_decoder.decode(reply)
        pairs = zip(_choices_decoder.decode(fields["choices"]), choices, strict=True)
        rewritten = [{**_fields_decoder.decode(raw), "logprobs": self._lists_of(choice)} for raw, choice in pairs]
        return msgspec.json.encode({**fields, "choices": rewritten})

    def _lists_of(self, choice: _ScoredChoice) -> dict[str, object] | None:
        offset = self._chars.get(choice.index, 0)
        self._chars[choice.index] = offset + len(choice.text or "")
        if choice.logprobs is None:
            return None
        tokens, scores, tops = _columns(choice.logprobs)
        offsets = [offset]
        for token in tokens[:-1]:
            offsets.append(offsets[-1] + len(token))
        return {
            "tokens": tokens,
            "token_logprobs": scores,
            "top_logprobs": [_likeliest(top, self._top) for top in tops],
            "text_offset": offsets[: len(tokens)],
        }


def _columns(given: _Logprobs) -> tuple[list[str], list[float | None], list[dict[str, float] | None]]:
    """Tokens, their log probabilities, and the likeliest in their places."""
    if given.content is not None:
        tops = [{each.token: each.logprob for each in token.top_logprobs or ()} for token in given.content]
        return [token.token for token in given.content], [token.logprob for token in given.content], [*tops]
    tokens = given.tokens or []
    scores, tops_given = given.token_logprobs or [], given.top_logprobs or []
    missing = len(tokens)
    return tokens, (scores + [None] * missing)[:missing], (tops_given + [None] * missing)[:missing]


def _likeliest(top: dict[str, float] | None, count: int) -> dict[str, float] | None:
    """Null for the first token of a prompt, which nothing comes before: so OpenAI has it."""
    if top is None:
        return None
    return dict(sorted(top.items(), key=lambda pair: -pair[1])[:count])
