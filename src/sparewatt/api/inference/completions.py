"""POST /v1/completions: a prompt is continued as text, without a chat around it.

The gateway writes the prompt of `echo` before the text by itself, since not every model server does.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from sparewatt.api.inference.chat import is_given, with_one_model
from sparewatt.core.errors import InvalidField
from sparewatt.inference.call import ModelCall
from sparewatt.inference.prompt import size_of_texts
from sparewatt.protocol.link.frames import JobPath
from sparewatt.protocol.openai.chat import fields_of, models_of
from sparewatt.protocol.openai.parameters import ignored_fields, partly_supported_fields, unknown_fields
from sparewatt.protocol.openai.prompts import MAX_TOKENS_UNASKED, CompletionRequest, PromptInputs, parse_completion

PATH: JobPath = "/v1/completions"
_DATA, _END = b"data: ", b"\n\n"
"""Of a server-sent event."""


def read_completion_request(body: bytes) -> ModelCall:
    """Raises InvalidJson, InvalidField or BodyTooLarge."""
    request, prompts = parse_completion(body)
    model, *fallbacks = models_of(request.model, request.models)
    fields = fields_of(body)
    if request.models is not UNSET:
        body = with_one_model(fields, model)
    limit = MAX_TOKENS_UNASKED if request.max_tokens is None else request.max_tokens
    if request.max_tokens is None:
        fields["max_tokens"] = msgspec.Raw(b"%d" % limit)
        body = msgspec.json.encode(fields)
    if request.best_of and request.best_of < (request.n or 1):
        raise InvalidField("'best_of' must not be less than 'n': the best 'n' of so many are sent.", param="best_of")
    echo = _echo_of(request, prompts)
    if echo is not None:
        fields.pop("echo")
        body = msgspec.json.encode(fields)
    answers_per_prompt = max(request.n or 1, request.best_of or 1) if limit else 0
    return ModelCall(
        path=PATH,
        model=model,
        body=body,
        size=size_of_texts(prompts.strings, prompts.ids),
        prompt=(bytes(fields["prompt"]),),
        provider=bytes(request.provider),
        stream=bool(request.stream),
        wants_usage=request.wants_usage,
        output_limit=limit or 1,
        answers=prompts.count * answers_per_prompt,
        needs=frozenset({"completions", "logprobs"} if is_given(request.logprobs) else {"completions"}),
        foreign=unknown_fields(fields, PATH),
        ignored=ignored_fields(fields, PATH),
        unsure=partly_supported_fields(fields, PATH),
        reply_filter=echo,
        fallbacks=tuple(fallbacks),
    )


def _echo_of(request: CompletionRequest, prompts: PromptInputs) -> Echo | None:
    """The gateway echoes texts. Token ids, and log probabilities of a prompt, only the model server can echo."""
    if not request.echo or prompts.ids or is_given(request.logprobs):
        return None
    return Echo(prompts.strings, answers=request.n or 1)


# echo


class _Choice(msgspec.Struct, frozen=True):
    index: int = 0
    text: str | None = None


class _Reply(msgspec.Struct, frozen=True):
    choices: list[_Choice] = []


_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_reply_decoder = msgspec.json.Decoder(_Reply)
_choices_decoder = msgspec.json.Decoder(list[msgspec.Raw])


class Echo:
    """Implements ReplyFilter for one request. Each choice gets its prompt once; of a stream, in its first piece."""

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
