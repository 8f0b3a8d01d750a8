"""POST /v1/embeddings: vectors of texts. Only the prompt costs."""

from __future__ import annotations

from dataclasses import dataclass

from sparewatt.inference.call import ModelCall
from sparewatt.inference.prompt import size_of_texts
from sparewatt.protocol.link.frames import JobPath
from sparewatt.protocol.openai.chat import fields_of
from sparewatt.protocol.openai.embeddings import Encoding, with_encoding
from sparewatt.protocol.openai.parameters import ignored_fields, unknown_fields
from sparewatt.protocol.openai.prompts import parse_embedding

PATH: JobPath = "/v1/embeddings"


def read_embedding_request(body: bytes) -> ModelCall:
    """Raises InvalidJson, InvalidField or BodyTooLarge."""
    request, texts = parse_embedding(body)
    fields = fields_of(body)
    return ModelCall(
        path=PATH,
        model=request.model,
        body=body,
        size=size_of_texts(texts.strings, texts.ids),
        provider=bytes(request.provider),
        output_limit=1,
        answers=0,
        needs=frozenset({"embeddings"}),
        foreign=unknown_fields(fields, PATH),
        ignored=ignored_fields(fields, PATH),
        reply_filter=EmbeddingFilter(request.encoding_format or "float"),
    )


@dataclass(frozen=True, slots=True)
class EmbeddingFilter:
    """Implements ReplyFilter: vectors in the order of their texts, in the encoding of the request. Nothing streams."""

    encoding: Encoding

    def whole(self, body: bytes) -> bytes:
        return with_encoding(body, self.encoding)

    def feed(self, data: bytes) -> bytes:
        return data

    def rest(self) -> bytes:
        return b""
