"""POST /v1/completions: text goes on from a prompt, without a chat around it."""

from __future__ import annotations

import msgspec

from sparewatt.core.errors import InvalidField
from sparewatt.gateway.openai.call import Call
from sparewatt.gateway.openai.echo import Echo
from sparewatt.gateway.openai.reading import is_there
from sparewatt.inference.admission.sizing import size_of_texts
from sparewatt.protocol.link import JobPath
from sparewatt.protocol.node import Capability
from sparewatt.protocol.openai import fields_of
from sparewatt.protocol.parameters import foreign_fields, ignored_fields, unsure_fields
from sparewatt.protocol.prompts import MAX_TOKENS_UNASKED, CompletionRequest, Pieces, parse_completion

PATH: JobPath = "/v1/completions"


def read_completion_request(body: bytes) -> Call:
    """Raises InvalidJson, InvalidField or BodyTooLarge."""
    asked, pieces = parse_completion(body)
    fields = fields_of(body)
    limit = MAX_TOKENS_UNASKED if asked.max_tokens is None else asked.max_tokens
    if asked.max_tokens is None:
        fields["max_tokens"] = msgspec.Raw(b"%d" % limit)
        body = msgspec.json.encode(fields)
    if asked.best_of and asked.best_of < (asked.n or 1):
        raise InvalidField("'best_of' must not be less than 'n': the best 'n' of so many are sent.", param="best_of")
    echo = _echo(asked, pieces)
    if echo is not None:
        fields.pop("echo")
        body = msgspec.json.encode(fields)
    writes = max(asked.n or 1, asked.best_of or 1) if limit else 0
    return Call(
        path=PATH,
        model=asked.model,
        body=body,
        size=size_of_texts(pieces.strings, pieces.ids),
        prompt=(bytes(fields["prompt"]),),
        provider=bytes(asked.provider),
        stream=bool(asked.stream),
        wants_usage=asked.wants_usage,
        output_limit=limit or 1,
        answers=pieces.count * writes,
        needs=_needs(asked),
        foreign=foreign_fields(fields, PATH),
        ignored=ignored_fields(fields, PATH),
        unsure=unsure_fields(fields, PATH),
        echo=echo,
        reshape=echo.whole if echo is not None else None,
    )


def _echo(asked: CompletionRequest, pieces: Pieces) -> Echo | None:
    """Ours where the prompts are texts; token ids, and how likely a prompt was, only the node's server can tell."""
    if not asked.echo or pieces.ids or is_there(asked.logprobs):
        return None
    return Echo(pieces.strings, answers=asked.n or 1)


def _needs(asked: CompletionRequest) -> frozenset[Capability]:
    return frozenset({"completions", "logprobs"} if is_there(asked.logprobs) else {"completions"})
