"""Frames between a node and a gateway, over one WebSocket that the node dials.

A WebSocket message holds one or more frames; a frame is `op (1 byte), stream (4), length (4), payload`. Stream 0 is the
link itself; every job has a stream of its own, numbered by the gateway. Control payloads are JSON.

    node → gateway   HELLO, PROOF, SPECS, LOAD, PONG, RECEIPT, SHEET, GOODBYE     HEAD, DATA, END, FAIL       (per job)
    gateway → node   CHALLENGE, WELCOME, REJECT, PING, COUNTERSIGNED, GOODBYE     OPEN, BODY, CREDIT, CANCEL  (per job)
"""

from __future__ import annotations

import enum
import struct
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from sparewatt.core.errors import ProtocolViolation
from sparewatt.core.ids import NodeId
from sparewatt.core.limits import (
    GATEWAY_PROCESSES_MAX,
    KIB,
    LINK_CONTROL_BYTES_MAX,
    LINK_FRAME_BYTES_MAX,
    REQUEST_BODY_BYTES_MAX,
)
from sparewatt.protocol.link.node_report import NodeLoad, NodeSpecs, ShortText
from sparewatt.protocol.signing import Domain, StructMember, typed_digest

PROTOCOL_VERSION = 1
LINK_PATH = "/link/v1"
_HEADER = struct.Struct(">BII")
FRAME_HEADER_BYTES = _HEADER.size
_pack_header = _HEADER.pack
unpack_header = _HEADER.unpack_from
"""Operation, stream and length, of a message at least as long as a header."""
_encode = msgspec.json.Encoder().encode
_SAME_MAX, _SAME_BYTES_MAX = 256, 512
"""Messages that come again and again are kept with what they were decoded to: so many of each kind, and so long."""
_DOMAIN = Domain(name="Sparewatt link", version="1")

Hex32 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
Address = Annotated[str, Meta(pattern=r"^0x[0-9a-f]{40}\Z")]
Text = Annotated[str, Meta(max_length=500)]
_Duration = Annotated[float, Meta(ge=0, le=1e6)]
_Port = Annotated[int, Meta(ge=1, le=65535)]


class Opcode(enum.IntEnum):
    HELLO = 1
    CHALLENGE = 2
    PROOF = 3
    WELCOME = 4
    REJECT = 5
    SPECS = 6
    LOAD = 7
    PING = 8
    PONG = 9
    GOODBYE = 10
    RECEIPT = 11
    COUNTERSIGNED = 12
    SHEET = 13
    OPEN = 16
    BODY = 17
    CREDIT = 18
    CANCEL = 19
    HEAD = 32
    DATA = 33
    END = 34
    FAIL = 35


_OPEN, _BODY = int(Opcode.OPEN), int(Opcode.BODY)
_SHORT_BODY_BYTES_MAX = 16 * KIB
"""Shorter than this, copying a body costs less than a second piece to be sent."""


class LinkFrame(NamedTuple):
    op: Opcode
    stream: int
    payload: bytes


class Hello(msgspec.Struct, frozen=True):
    """Who dials, which gateway it believes to have dialled, and its half of the nonce."""

    node_id: Address
    nonce: Hex32
    host: Text
    protocol: int = PROTOCOL_VERSION
    agent_version: ShortText = "unknown"
    token: Annotated[str, Meta(max_length=200)] | None = None


class Challenge(msgspec.Struct, frozen=True):
    nonce: Hex32
    gateway_version: ShortText


class LinkProof(msgspec.Struct, frozen=True):
    signature: Annotated[str, Meta(pattern=r"^[0-9a-f]{130}\Z")]
    specs: NodeSpecs


class Welcome(msgspec.Struct, frozen=True):
    heartbeat_s: Annotated[float, Meta(gt=0, le=600)]
    gateway_version: ShortText
    takes_sheets: bool = False
    """Whether a node may sign many receipts at once; a gateway that does not say wants one by one."""
    link_ports: Annotated[tuple[_Port, ...], Meta(max_length=GATEWAY_PROCESSES_MAX)] = ()
    """Where each of the gateway's processes takes links, on the host that the node dialled; empty of a gateway that is
    one process. A node that knows the field keeps a link to each; another serves what comes to the one it reached."""
    link_port: _Port | None = None
    """Which of them this process has."""


class Reject(msgspec.Struct, frozen=True):
    """`final`: dialling again with the same key and token cannot help."""

    reason: ShortText
    message: Text
    final: bool = True


class Goodbye(msgspec.Struct, frozen=True):
    reason: Text


JobPath = Literal["/v1/chat/completions", "/v1/completions", "/v1/embeddings"]
"""What a gateway may ask a node's model server for."""


class JobRequest(msgspec.Struct, frozen=True):
    """A job: an HTTP POST for the node's model server. The body follows in BODY frames."""

    path: JobPath
    model: str
    body_bytes: Annotated[int, Meta(ge=0, le=REQUEST_BODY_BYTES_MAX)]
    stream: bool
    window_bytes: Annotated[int, Meta(ge=1, le=1 << 30)]
    promised_ttft_s: _Duration = 0.0
    """What the gateway counts on; 0 is no promise, and no reason to refuse."""
    prompt_tokens: Annotated[int, Meta(ge=0, le=1 << 32)] = 0
    """By the gateway's guess, which the promise was made with."""
    cached_tokens: Annotated[int, Meta(ge=0, le=1 << 32)] = 0
    """Of these, what the gateway believes the node's server to hold from before. The promise counts on it."""
    job: Annotated[str, Meta(max_length=64)] = ""
    """Its id, which the node's receipt names. An older gateway says none, and wants no receipt."""
    continue_bytes: Annotated[int, Meta(ge=0, le=REQUEST_BODY_BYTES_MAX)] = 0
    """So many bytes at the end of the body are no part of the request, but the text of its answer so far, which another
    node wrote. Only nodes that say they can go on from there (`Capability`) are asked to."""


class Credit(msgspec.Struct, frozen=True):
    n_bytes: Annotated[int, Meta(ge=1, le=1 << 30)]


class JobReplyHead(msgspec.Struct, frozen=True):
    status: Annotated[int, Meta(ge=100, le=599)]
    content_type: Text = "application/json"


class JobEnd(msgspec.Struct, frozen=True):
    """The reply is complete. Carries fresh state, as every reply does."""

    load: NodeLoad
    first_byte_s: _Duration | None = None
    duration_s: _Duration = 0.0


FailCode = Literal["refused", "backend_unreachable", "backend_broke", "backend_timeout", "link_lost", "protocol"]


class JobFailure(msgspec.Struct, frozen=True):
    """The job ended early on the node's side. `refused`: it never started, so nothing is lost by going elsewhere."""

    code: FailCode
    message: Text
    load: NodeLoad | None = None


_T = TypeVar("_T")
_decoders: dict[type, msgspec.json.Decoder[Any]] = {}
"""One for each kind of message, made when the first comes."""


def encode_frame(op: Opcode, stream: int = 0, payload: bytes = b"") -> bytes:
    if len(payload) > LINK_FRAME_BYTES_MAX:
        raise ValueError("frame payload over the limit")
    return _pack_header(op, stream, len(payload)) + payload


def encode_message(op: Opcode, message: msgspec.Struct, *, stream: int = 0) -> bytes:
    return encode_frame(op, stream, _encode(message))


def encode_job(job: JobRequest, body: bytes, stream: int) -> list[bytes]:
    """OPEN and the BODY after it. Nearly every body is short, and then they are one piece."""
    meta = _encode(job)
    if len(body) <= _SHORT_BODY_BYTES_MAX and body:
        return [_pack_header(_OPEN, stream, len(meta)) + meta + _pack_header(_BODY, stream, len(body)) + body]
    pieces = range(0, len(body), LINK_FRAME_BYTES_MAX)
    frames = [encode_frame(Opcode.BODY, stream, body[at : at + LINK_FRAME_BYTES_MAX]) for at in pieces]
    return [encode_frame(Opcode.OPEN, stream, meta), *frames]


def split_frames(message: bytes) -> list[tuple[int, int, bytes]]:
    """Operation, stream and payload of each frame of one WebSocket message: numbers as they came, on a hot path.

    Raises ProtocolViolation for what is no frame. Whether the operation exists is for the caller to see.
    """
    frames = []
    at, end = 0, len(message)
    while at < end:
        try:
            op, stream, length = unpack_header(message, at)
        except struct.error:
            raise ProtocolViolation("a frame header was cut short") from None
        start = at + FRAME_HEADER_BYTES
        at = start + length
        if at > end or length > LINK_FRAME_BYTES_MAX:
            raise ProtocolViolation("a frame is longer than its message or the limit")
        frames.append((op, stream, message[start:at]))
    return frames


def decode_frames(message: bytes) -> list[LinkFrame]:
    """All frames of one WebSocket message. Raises ProtocolViolation for anything else."""
    return [LinkFrame(parse_opcode(op), stream, payload) for op, stream, payload in split_frames(message)]


def parse_opcode(op: int) -> Opcode:
    """Raises ProtocolViolation for a number that means nothing."""
    try:
        return Opcode(op)
    except ValueError:
        raise ProtocolViolation(f"unknown operation {op}") from None


def decode_message(payload: bytes, shape: type[_T]) -> _T:
    """One control message. Raises ProtocolViolation for anything else."""
    if len(payload) > LINK_CONTROL_BYTES_MAX:
        raise ProtocolViolation("a control message is over the limit")
    decoder: msgspec.json.Decoder[_T] | None = _decoders.get(shape)
    if decoder is None:
        decoder = _decoders[shape] = msgspec.json.Decoder(shape)
    try:
        return decoder.decode(payload)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ProtocolViolation(f"{shape.__name__}: {str(error)[:200]}") from None


def decode_head(payload: bytes) -> JobReplyHead:
    """Nearly all heads are the same few."""
    return _cached_head(payload) if len(payload) <= _SAME_BYTES_MAX else decode_message(payload, JobReplyHead)


def decode_load(payload: bytes) -> NodeLoad:
    """Idle nodes say the same on every heartbeat, and as each other."""
    return _cached_load(payload) if len(payload) <= _SAME_BYTES_MAX else decode_message(payload, NodeLoad)


@lru_cache(maxsize=_SAME_MAX)
def _cached_head(payload: bytes) -> JobReplyHead:
    return decode_message(payload, JobReplyHead)


@lru_cache(maxsize=_SAME_MAX)
def _cached_load(payload: bytes) -> NodeLoad:
    return decode_message(payload, NodeLoad)


def challenge_digest(*, host: str, node_id: NodeId, gateway_nonce: str, node_nonce: str) -> bytes:
    """What a node signs to show that it holds its key, to this gateway, now."""
    return typed_digest(
        _DOMAIN,
        "LinkChallenge",
        [
            StructMember("string", "host", host),
            StructMember("address", "node", node_id),
            StructMember("bytes32", "gatewayNonce", bytes.fromhex(gateway_nonce)),
            StructMember("bytes32", "nodeNonce", bytes.fromhex(node_nonce)),
        ],
    )
