"""Replies for clients that sent `functions`: a tool call as the older `function_call`."""

from __future__ import annotations

from typing import Any

import msgspec

from sparewatt.api.inference.reply_rewriter import ReplyRewriter, decoded
from sparewatt.protocol.openai.legacy_functions import with_function_call


class _Reply(msgspec.Struct, frozen=True):
    choices: list[dict[str, Any]] = []


_reply_decoder = msgspec.json.Decoder(_Reply)
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


class LegacyFunctionCalls(ReplyRewriter):
    def rewrite(self, reply: bytes) -> bytes:
        choices = decoded(_reply_decoder, reply).choices
        if not choices:
            return reply
        written = [with_function_call(choice) for choice in choices]
        return msgspec.json.encode({**_fields_decoder.decode(reply), "choices": written})
