"""POST /v1/embeddings: vectors of texts. Only the prompt costs."""

from __future__ import annotations

from functools import partial

from sparewatt.gateway.openai.call import Call
from sparewatt.inference.admission.sizing import size_of_texts
from sparewatt.protocol.link import JobPath
from sparewatt.protocol.openai import fields_of
from sparewatt.protocol.parameters import foreign_fields, ignored_fields
from sparewatt.protocol.prompts import parse_embedding
from sparewatt.protocol.vectors import written_as

PATH: JobPath = "/v1/embeddings"


def read_embedding_request(body: bytes) -> Call:
    """Raises InvalidJson, InvalidField or BodyTooLarge."""
    asked, pieces = parse_embedding(body)
    fields = fields_of(body)
    return Call(
        path=PATH,
        model=asked.model,
        body=body,
        size=size_of_texts(pieces.strings, pieces.ids),
        provider=bytes(asked.provider),
        output_limit=1,
        answers=0,
        needs=frozenset({"embeddings"}),
        foreign=foreign_fields(fields, PATH),
        ignored=ignored_fields(fields, PATH),
        reshape=partial(written_as, encoding=asked.encoding_format or "float"),
    )
