"""Lies about how much was delivered: a node that answers rightly, and wants to be paid for more than can be read."""

from __future__ import annotations

import json
from functools import partial

from sparewatt.protocol.link.frames import Opcode, encode_message
from sparewatt.protocol.link.receipts import Receipt, SignedReceipt, SignedSheet, sheet_digest
from tests.integration.hostile_nodes.behaviour import Behaviour, at_usual_price
from tests.integration.hostile_nodes.liar import HostileJob, Piece, Usage, event

PADDING = "x" * 8192
ZERO_WIDTH = "\u200b"
ZERO_WIDTH_CHUNKS = 500
EMPTY_CHUNKS = 1000
ESCAPED_BYTES = 6
"""Of one character as `\\u0059`."""


async def unknown_field(job: HostileJob) -> None:
    """8 KiB in a field of the delta that no client's library shows, claimed as if it was text."""
    await job.say([{"content": "Yes.", "x_padding": PADDING}], usage=job.usage(len(PADDING) // 2))


async def unknown_choice_field(job: HostileJob) -> None:
    """The same beside the delta, and beside the choices."""
    if not job.meta.stream:
        await job.say([{"content": "Yes.", "x_padding": PADDING}], usage=job.usage(len(PADDING) // 2))
        return
    job.head()
    await job.data(job.chunk({"content": "Yes."}, x_padding=PADDING))
    await job.data(event({"object": "chat.completion.chunk", "choices": [], "x_padding": PADDING}))
    await job.data(job.chunk({}, finish="stop"))
    await job.data(job.chunk(None, usage=job.usage(len(PADDING))) + b"data: [DONE]\n\n")
    job.end()


async def escapes(job: HostileJob) -> None:
    """Each letter as `\\u0059`: six bytes of JSON for one character."""
    text = "".join(job.tokens())
    claimed = job.usage(len(text) * ESCAPED_BYTES // 2)
    written = '"' + "".join(f"\\u{ord(each):04x}" if ord(each) < 1 << 16 else each for each in text) + '"'
    if not job.meta.stream:
        await job.say([text], usage=claimed)
        return
    job.head()
    marker = json.dumps("TEXT")
    await job.data(job.chunk({"content": "TEXT"}).replace(marker.encode(), written.encode()))
    await job.data(job.chunk({}, finish="stop") + job.chunk(None, usage=claimed) + b"data: [DONE]\n\n")
    job.end()


async def zero_width(job: HostileJob) -> None:
    """A short answer, and then one zero-width character per chunk: a token each."""
    pieces = ["Yes.", *[ZERO_WIDTH] * ZERO_WIDTH_CHUNKS]
    await job.say(pieces, usage=job.usage(len(pieces)))


async def letter_by_letter(job: HostileJob) -> None:
    """A chunk for each letter, and a token for each chunk."""
    letters = list("".join(job.tokens()))
    await job.say(letters, usage=job.usage(len(letters)))


async def claims(job: HostileJob, *, usage: str) -> None:
    """The right answer, with token counts that no text explains. `usage` is a template of JSON."""
    tokens = job.tokens()
    told = usage % {"prompt": job.prompt_tokens, "completion": len(tokens)}
    await job.say(tokens, usage=told)


async def prompt_twentyfold(job: HostileJob) -> None:
    tokens = job.tokens()
    await job.say(tokens, usage=job.usage(len(tokens), prompt=20 * job.prompt_tokens))


async def half_of_the_bytes(job: HostileJob) -> None:
    """A token for every two bytes: three times what this text has, and still possible."""
    tokens = job.tokens()
    await job.say(tokens, usage=job.usage(len("".join(tokens).encode()) // 2))


async def usage_in_every_chunk(job: HostileJob) -> None:
    """Growing token counts beside every piece of text."""
    if not job.meta.stream:
        await claims(job, usage=GROWN)
        return
    job.head()
    for at, token in enumerate(job.tokens(), 1):
        await job.data(job.chunk({"content": token}, usage=job.usage(at * 1000)))
    await job.data(job.chunk({}, finish="stop", usage=job.usage(10**6)) + b"data: [DONE]\n\n")
    job.end()


async def second_choice(job: HostileJob) -> None:
    """Nobody asked for a second text, so no client shows it."""
    tokens = job.tokens()
    claimed = job.usage(len(tokens) * 20)
    if not job.meta.stream:
        await job.say(tokens, usage=claimed)
        return
    job.head()
    for token in tokens:
        await job.data(job.chunk({"content": token}))
        for _ in range(20):
            await job.data(job.chunk({"content": token}, index=1))
    await job.data(job.chunk({}, finish="stop") + job.chunk({}, finish="stop", index=1))
    await job.data(job.chunk(None, usage=claimed) + b"data: [DONE]\n\n")
    job.end()


async def empty_chunks(job: HostileJob) -> None:
    """A thousand chunks that carry a role and no text."""
    pieces: list[Piece] = [*job.tokens(), *[{"role": "assistant", "content": ""}] * EMPTY_CHUNKS]
    await job.say(pieces, usage=job.usage(len(pieces)))


async def logprobs(job: HostileJob) -> None:
    """Log probabilities that nobody asked for, with more text in them than in the answer."""
    other = [{"token": PADDING[:200], "logprob": -1.0, "bytes": None, "top_logprobs": []}] * 20
    tokens = job.tokens()
    claimed = job.usage(len(tokens) * 200)
    if not job.meta.stream:
        await job.say(tokens, usage=claimed)
        return
    job.head()
    for token in tokens:
        await job.data(job.chunk({"content": token}, logprobs={"content": other}))
    await job.data(job.chunk({}, finish="stop") + job.chunk(None, usage=claimed) + b"data: [DONE]\n\n")
    job.end()


async def tool_arguments(job: HostileJob) -> None:
    """Calls of a tool that nobody offered, whose arguments are spaces."""
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": " " * 400}}
    pieces: list[Piece] = [{"content": "Yes."}, *[{"tool_calls": [call]}] * 40]
    await job.say(pieces, usage=job.usage(40 * 200))


async def swollen_receipts(job: HostileJob) -> None:
    """Answers and counts rightly; then receipts for a hundred times as much, well and badly signed, also of others."""
    tokens = job.tokens()
    await job.say(tokens, usage=job.usage(len(tokens)))
    node = job.node
    for at, job_id in enumerate((job.meta.job, f"{job.meta.job[:-1]}x")):
        receipt = Receipt(job_id, node.node_id, job.meta.model, 10**6, 100 * len(tokens), 1, 1 + at)
        good = node.key.sign(sheet_digest(node.node_id, [receipt.digest()])).hex()
        for signature in (good, "11" * 65):
            node.send(encode_message(Opcode.SHEET, SignedSheet([receipt], signature)))
            node.send(encode_message(Opcode.RECEIPT, SignedReceipt(receipt, signature)))


HUGE = '{"prompt_tokens": %(prompt)d, "completion_tokens": 1000000000, "total_tokens": 1000000000}'
NEGATIVE = '{"prompt_tokens": -5, "completion_tokens": -1000000, "total_tokens": -1}'
NOT_A_NUMBER = '{"prompt_tokens": NaN, "completion_tokens": Infinity, "total_tokens": "many"}'
FRACTION = '{"prompt_tokens": %(prompt)d.5, "completion_tokens": 1e9, "total_tokens": 1e400}'
BEYOND_64_BITS = '{"prompt_tokens": %(prompt)d, "completion_tokens": 99999999999999999999999, "total_tokens": 1}'
GROWN = '{"prompt_tokens": %(prompt)d, "completion_tokens": 999999, "total_tokens": 999999}'


def _claims(name: str, lie: str, usage: Usage) -> Behaviour:
    answer = partial(claims, usage=str(usage))
    return Behaviour(name=name, lie=lie, answer=answer, specs=at_usual_price, is_paid=True)


def _answers(name: str, lie: str, answer: object) -> Behaviour:
    return Behaviour(name=name, lie=lie, answer=answer, specs=at_usual_price, is_paid=True)  # type: ignore[arg-type]


OVERCHARGING = (
    _answers("unknown-field", "pads the delta with an unknown field of 8 KiB", unknown_field),
    _answers("unknown-field-beside", "pads choice and chunk with unknown fields of 8 KiB", unknown_choice_field),
    _answers("unicode-escapes", "writes each letter as a Unicode escape", escapes),
    _answers("zero-width", "sends one zero-width character per chunk", zero_width),
    _answers("letter-by-letter", "counts each letter as a token", letter_by_letter),
    _answers("prompt-x20", "claims a prompt twenty times as long", prompt_twentyfold),
    _answers("half-of-the-bytes", "claims a token for every two bytes", half_of_the_bytes),
    _claims("usage-1e9", "claims 10⁹ tokens", HUGE),
    _claims("usage-negative", "claims negative counts", NEGATIVE),
    _claims("usage-nan", "claims NaN, infinity and a word", NOT_A_NUMBER),
    _claims("usage-fraction", "claims fractions and 10⁴⁰⁰", FRACTION),
    _claims("usage-beyond-64-bits", "claims more than 64 bits hold", BEYOND_64_BITS),
    _answers("usage-in-every-chunk", "sends growing token counts in every chunk", usage_in_every_chunk),
    _answers("second-choice", "writes a second text that nobody asked for", second_choice),
    _answers("empty-chunks", "sends a thousand chunks without text", empty_chunks),
    _answers("logprobs-flood", "hides text in log probabilities", logprobs),
    _answers("tool-call-flood", "calls a tool that nobody offered, with 16 kB of spaces", tool_arguments),
    _answers("swollen-receipts", "signs receipts for a hundred times as much", swollen_receipts),
)
