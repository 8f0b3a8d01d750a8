"""Traps: a node that says that it is free and the fastest there is, and then does not serve what it attracts."""

from __future__ import annotations

import asyncio
import json
from functools import partial

from sparewatt.core.limits import KIB, LINK_FRAME_BYTES_MAX, MIB
from sparewatt.protocol.link.frames import JobFailure, Opcode, encode_frame
from sparewatt.protocol.link.node_report import NodeLoad
from tests.integration.hostile_nodes.behaviour import Attack, Behaviour, Bounds, answer_honestly, join
from tests.integration.hostile_nodes.liar import EVENT_STREAM, Answer, HostileJob

MARKER = "sk-injected0secret0by0a0node"
"""In every error text of a hostile node: it must not reach a client or a log."""
INJECTED = f"\x1b[2J\x1b]0;owned\x07<script>alert('{MARKER}')</script> use key {MARKER}\r\nSet-Cookie: a=b"
TRICKLE_S = 0.2
TRICKLES_MAX = 600
WORDS_MAX = 20_000


async def status(job: HostileJob, *, code: int) -> None:
    """An error of its model server, with a text of its own."""
    told = {"error": {"message": INJECTED, "type": "invalid_request_error", "code": MARKER, "param": MARKER}}
    await job.refuse(code, json.dumps(told).encode())


async def silence(job: HostileJob) -> None:
    """Takes the job and says nothing."""
    await asyncio.Event().wait()


async def silence_after_head(job: HostileJob) -> None:
    job.head()
    await asyncio.Event().wait()


async def stall(job: HostileJob) -> None:
    """The first token at once, and no second one."""
    job.head()
    await job.data(job.chunk({"role": "assistant", "content": ""}) + job.chunk({"content": job.tokens()[0]}))
    await asyncio.Event().wait()


async def trickle(job: HostileJob, *, piece: str) -> None:
    """A sign of life again and again, and never a token."""
    pieces = {
        "comment": b": keep-alive\n\n",
        "empty": job.chunk({"content": ""}),
        "role": job.chunk({"role": "assistant"}),
    }
    job.head()
    for _ in range(TRICKLES_MAX):
        await job.data(pieces[piece])
        await asyncio.sleep(TRICKLE_S)


async def nonsense(job: HostileJob) -> None:
    await job.say(["colourless ", "green ", "ideas"], usage=job.usage(3))


async def raw(job: HostileJob, *, data: bytes) -> None:
    """These bytes for an answer."""
    job.head(content_type=EVENT_STREAM)
    await job.data(data)
    job.end()


async def half_an_event(job: HostileJob) -> None:
    """Half of the answer, and the last event is cut."""
    job.head()
    tokens = job.tokens()
    for token in tokens[: len(tokens) // 2]:
        await job.data(job.chunk({"content": token}))
    await job.data(job.chunk({"content": tokens[-1]})[:-20])
    job.end()


async def never_ends(job: HostileJob) -> None:
    """Words without end, as fast as they are taken."""
    job.head()
    for _ in range(WORDS_MAX):
        await job.data(job.chunk({"content": " word"}))
        await asyncio.sleep(0.002)
    await asyncio.Event().wait()


async def without_finish_reason(job: HostileJob) -> None:
    half = job.tokens()[: len(job.tokens()) // 2]
    await job.say(half, finish=None, usage=job.usage(len(half)))


async def without_done(job: HostileJob) -> None:
    """Ends in the middle, without a word."""
    job.head()
    for token in job.tokens()[:3]:
        await job.data(job.chunk({"content": token}))
    job.end()


async def unknown_finish_reason(job: HostileJob) -> None:
    tokens = job.tokens()
    await job.say(tokens, finish=INJECTED, usage=job.usage(len(tokens)))


async def error_event(job: HostileJob) -> None:
    """An error in the middle of the stream, with a text of its own."""
    job.head()
    await job.data(job.chunk({"content": job.tokens()[0]}))
    await job.data(b"data: " + json.dumps({"error": {"message": INJECTED, "code": 500}}).encode() + b"\n\n")
    job.end()


async def fail(job: HostileJob, *, failure: JobFailure) -> None:
    job.fail(failure)


async def huge_event(job: HostileJob) -> None:
    """One event of two megabytes."""
    job.head()
    await job.data(b'data: {"choices": [{"index": 0, "delta": {"content": "' + b"a" * (2 * MIB))
    await asyncio.Event().wait()


async def byte_by_byte(job: HostileJob) -> None:
    """The right answer, a byte per frame and twenty bytes a second."""
    job.head()
    for byte in b"".join(job.chunk({"content": token}) for token in job.tokens()):
        await job.data(bytes([byte]))
        await asyncio.sleep(0.05)
    job.end()


async def hang_up_after(job: HostileJob, *, tokens: int) -> None:
    """Drops its link in the middle of the answer, with whatever else is on it."""
    job.head()
    for token in job.tokens()[:tokens]:
        await job.data(job.chunk({"content": token}))
    await asyncio.sleep(0.01)
    job.node.hang_up()


async def repeat_what_was_said(job: HostileJob) -> None:
    """Begins to answer and fails; asked to continue, it says all of it again, and claims it."""
    if not job.meta.continue_bytes:
        await half_an_event(job)
        return
    tokens = job.tokens()
    await job.say([*tokens, *tokens], usage=job.usage(2 * len(tokens)))


SLEEP_JOBS = 10
"""That a sleeper answers rightly before it turns."""


async def sleep_then(job: HostileJob, *, turned: Answer) -> None:
    """Earns a good name first."""
    await (answer_honestly if job.node.opened <= SLEEP_JOBS else turned)(job)


# frames that do not belong where they are


async def foreign_streams(job: HostileJob) -> None:
    """Answers jobs of numbers that it may guess, before its own."""
    for number in (job.number - 1, job.number + 1, job.number + 1000):
        if number > 0:
            job.node.send(encode_frame(Opcode.DATA, number, job.chunk({"content": "not yours"})))
    await nonsense(job)


async def double_end(job: HostileJob) -> None:
    await answer_honestly(job)
    job.end()
    job.end()


async def frames_after_end(job: HostileJob) -> None:
    await answer_honestly(job)
    for _ in range(50):
        job.send(Opcode.DATA, job.chunk({"content": " more"}))
    job.head()
    job.fail(JobFailure("backend_broke", INJECTED))


async def data_before_head(job: HostileJob) -> None:
    job.send(Opcode.DATA, job.chunk({"content": "early"}))
    await asyncio.Event().wait()


async def two_heads(job: HostileJob) -> None:
    job.head()
    job.head(500)
    await asyncio.Event().wait()


async def beyond_credit(job: HostileJob) -> None:
    """A megabyte of text at once, whatever the window is."""
    job.head()
    for _ in range(16):
        job.send(Opcode.DATA, job.chunk({"content": "a" * (64 * KIB)}))
    await asyncio.Event().wait()


async def oversize_frame(job: HostileJob) -> None:
    job.head()
    length = LINK_FRAME_BYTES_MAX + 1
    job.node.send(bytes([Opcode.DATA]) + job.number.to_bytes(4, "big") + length.to_bytes(4, "big") + bytes(length))
    await asyncio.Event().wait()


async def headers_of_others(job: HostileJob) -> None:
    """A content type with line breaks, as if it wrote the reply's head."""
    job.node.send(
        encode_frame(
            Opcode.HEAD,
            job.number,
            json.dumps({"status": 200, "content_type": f"text/html\r\nX-Injected: {MARKER}"}).encode(),
        )
    )
    await job.data(b"<html>" + INJECTED.encode() + b"</html>")
    job.end()


async def rejoining(attack: Attack) -> None:
    """A node whose link ends joins again at once: the trap stays open."""
    while True:
        for node in list(attack.nodes):
            if not node.is_linked:
                await join(node)
        await asyncio.sleep(0.1)


TRAP_SHARE_MAX = 1.0
"""Of others' requests that may end at a node that answers at once, for nothing, and with nonsense. It is as fast as it
was timed, and its model so small that any card could be: only a check of answers could find it."""


def _trap(name: str, lie: str, answer: object, **more: object) -> Behaviour:
    return Behaviour(name=name, lie=lie, answer=answer, beside=rejoining, is_paid=True, **more)  # type: ignore[arg-type]


def _status(code: int) -> Behaviour:
    return _trap(f"answers-{code}", f"answers {code} to everything, with a text of its own", partial(status, code=code))


def _raw(name: str, lie: str, data: bytes) -> Behaviour:
    return _trap(name, lie, partial(raw, data=data))


def _fail(name: str, lie: str, failure: JobFailure) -> Behaviour:
    return _trap(name, lie, partial(fail, failure=failure))


INVALID_UTF8 = b'data: {"choices": [{"index": 0, "delta": {"content": "\xff\xfe\xc3"}}]}\n\ndata: [DONE]\n\n'
PAGE = b"<html><body>please log in</body></html>"

TRAPS = (
    *(_status(code) for code in (400, 404, 413, 422, 429, 500)),
    _trap("never-answers", "takes every job and never answers", silence),
    _trap("head-then-silence", "sends a head and nothing else", silence_after_head),
    _trap("first-token-then-stall", "sends one token and stalls", stall),
    _trap("comment-trickle", "sends comments for ever", partial(trickle, piece="comment")),
    _trap("empty-delta-trickle", "sends empty deltas for ever", partial(trickle, piece="empty")),
    _trap("role-only-trickle", "sends role-only chunks for ever", partial(trickle, piece="role")),
    _trap("nonsense", "answers nonsense", nonsense, bounds=Bounds(share_max=TRAP_SHARE_MAX)),
    _raw("garbage-bytes", "answers with random bytes", bytes(range(256)) * 64),
    _raw("invalid-utf8", "answers with text that is no UTF-8", INVALID_UTF8),
    _raw("a-page", "answers with a web page", PAGE),
    _raw("empty-answer", "answers with nothing at all", b""),
    _trap("half-an-event", "cuts the answer inside an event", half_an_event),
    _trap("never-ends", "writes words without end", never_ends),
    _trap("no-finish-reason", "ends half an answer without a finish reason", without_finish_reason),
    _trap("no-done", "ends in the middle without a word", without_done),
    _trap("unknown-finish-reason", "invents a finish reason with control characters", unknown_finish_reason),
    _trap("error-event", "sends an error in the middle of the stream", error_event),
    _trap("huge-event", "sends one event of two megabytes", huge_event),
    _trap("byte-by-byte", "sends twenty bytes a second", byte_by_byte),
    _fail("fails-with-a-text", "fails every job with an injected text", JobFailure("backend_broke", INJECTED)),
    _fail("refuses-with-ttft-1e6", "refuses and expects 10⁶ s", JobFailure("refused", INJECTED, NodeLoad(), 1e6)),
    _fail("refuses-with-ttft-0", "refuses and expects nothing", JobFailure("refused", "full", NodeLoad(), 0.0)),
    *(
        _trap(
            f"hangs-up-after-{n}", f"drops its link after {n} tokens and joins again", partial(hang_up_after, tokens=n)
        )
        for n in (0, 1, 5)
    ),
    _trap("sleeper-400", "answers ten jobs, then 400", partial(sleep_then, turned=partial(status, code=400))),
    _trap("sleeper-silent", "answers ten jobs, then none", partial(sleep_then, turned=silence)),
    _trap("colluding-400", "answers 400, with nodes of three owners", partial(status, code=400), nodes=3, owners=3),
    _trap("repeats-what-was-said", "repeats an answer that it should continue", repeat_what_was_said, nodes=2),
    _trap("foreign-streams", "answers jobs that are not its own", foreign_streams),
    _trap("double-end", "ends every job three times", double_end),
    _trap("frames-after-end", "goes on after the end", frames_after_end),
    _trap("data-before-head", "sends data before the head", data_before_head),
    _trap("two-heads", "sends two heads", two_heads),
    _trap("beyond-credit", "sends a megabyte without credit", beyond_credit),
    _trap("oversize-frame", "sends a frame that is too long", oversize_frame),
    _trap("injected-head", "puts line breaks into the head", headers_of_others),
)
