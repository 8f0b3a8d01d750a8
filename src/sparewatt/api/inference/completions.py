"""POST /v1/completions: a prompt is continued as text, without a chat around it."""

from __future__ import annotations

import msgspec

from sparewatt.api.inference.chat import is_given
from sparewatt.api.inference.echo import Echo
from sparewatt.core.errors import InvalidField
from sparewatt.inference.call import ModelCall
from sparewatt.inference.prompt import size_of_texts
from sparewatt.protocol.link.frames import JobPath
from sparewatt.protocol.link.node_report import Capability
from sparewatt.protocol.openai.chat import fields_of
from sparewatt.protocol.openai.parameters import ignored_fields, partly_supported_fields, unknown_fields
from sparewatt.protocol.openai.prompts import MAX_TOKENS_UNASKED, CompletionRequest, PromptInputs, parse_completion

PATH: JobPath = "/v1/completions"


def read_completion_request(body: bytes) -> ModelCall:
    """Raises InvalidJson, InvalidField or BodyTooLarge."""
    request, prompts = parse_completion(body)
    fields = fields_of(body)
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
        model=request.model,
        body=body,
        size=size_of_texts(prompts.strings, prompts.ids),
        prompt=(bytes(fields["prompt"]),),
        provider=bytes(request.provider),
        stream=bool(request.stream),
        wants_usage=request.wants_usage,
        output_limit=limit or 1,
        answers=prompts.count * answers_per_prompt,
        needs=_needs_of(request),
        foreign=unknown_fields(fields, PATH),
        ignored=ignored_fields(fields, PATH),
        unsure=partly_supported_fields(fields, PATH),
        reply_filter=echo,
    )


def _echo_of(request: CompletionRequest, prompts: PromptInputs) -> Echo | None:
    """The gateway echoes texts. Token ids, and log probabilities of a prompt, only the model server can echo."""
    if not request.echo or prompts.ids or is_given(request.logprobs):
        return None
    return Echo(prompts.strings, answers=request.n or 1)


def _needs_of(request: CompletionRequest) -> frozenset[Capability]:
    return frozenset({"completions", "logprobs"} if is_given(request.logprobs) else {"completions"})
