"""POST /v1/completions: a prompt is continued as text, without a chat around it.

The gateway writes the prompt of `echo` before the text by itself, since not every model server does, and log
probabilities in the shape that this endpoint has, whatever a server sends (`text_filters`).
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from sparewatt.api.inference.chat import with_one_model
from sparewatt.api.inference.text_filters import Echo, TextLogprobs
from sparewatt.core.errors import InvalidField
from sparewatt.inference.call import ModelCall
from sparewatt.inference.prompt import size_of_texts
from sparewatt.protocol.link.frames import JobPath
from sparewatt.protocol.openai.chat import fields_of, models_of
from sparewatt.protocol.openai.parameters import ignored_fields, partly_supported_fields, unknown_fields
from sparewatt.protocol.openai.prompts import MAX_TOKENS_UNASKED, CompletionRequest, PromptInputs, parse_completion

PATH: JobPath = "/v1/completions"


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
    if request.logprobs == 0:  # the token's own and no others: llama.cpp takes 0 for none at all
        fields["logprobs"] = msgspec.Raw(b"1")
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
        needs=frozenset({"completions"} if request.logprobs is None else {"completions", "logprobs"}),
        foreign=unknown_fields(fields, PATH),
        ignored=ignored_fields(fields, PATH),
        unsure=partly_supported_fields(fields, PATH),
        reply_filter=echo if request.logprobs is None else TextLogprobs(request.logprobs),
        fallbacks=tuple(fallbacks),
    )


def _echo_of(request: CompletionRequest, prompts: PromptInputs) -> Echo | None:
    """The gateway echoes texts. Token ids, and log probabilities of a prompt, only the model server can echo."""
    if not request.echo or prompts.ids or request.logprobs is not None:
        return None
    return Echo(prompts.strings, answers=request.n or 1)
