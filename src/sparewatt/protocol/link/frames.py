"""Frames and control messages between a node and a gateway, over one WebSocket that the node dials.

A WebSocket message holds one or more frames; a frame is `op (1 byte), stream (4), length (4), payload`. Stream 0 is the
link itself; every job has a stream of its own, numbered by the gateway. Control messages are JSON. Flow control is by
credit: a node may send `window_bytes` of a reply, and more as CREDIT arrives.

    node → gateway   HELLO, PROOF, SPECS, LOAD, PONG, RECEIPT, SHEET, NODE_KEY, GOODBYE
         of a job    HEAD, DATA, END, FAIL
    gateway → node   CHALLENGE, WELCOME, REJECT, PING, COUNTERSIGNED, NAMES, PROVIDER, MARKET, LOOKUP, OUTCOME,
                     LEASE_TRAFFIC, GOODBYE
         of a job    OPEN, BODY, CREDIT, CANCEL
"""

from __future__ import annotations

import enum
import re
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
from sparewatt.protocol.link.node_report import Address, Hex32, ModelName, NodeLoad, NodeSpecs, ShortText, Signature
from sparewatt.protocol.signing import Domain, StructMember, typed_digest

PROTOCOL_VERSION = 1
MODELS_NAMED_MAX, WANTED_MODELS_MAX = 50, 10
"""What an owner reads, and what fits into a control message however long the names are."""
LINK_PATH = "/link/v1"
_HEADER = struct.Struct(">BII")
FRAME_HEADER_BYTES = _HEADER.size
_pack_header = _HEADER.pack
unpack_header = _HEADER.unpack_from
"""Opcode, stream and length of the frame at an offset of a message."""
_encode = msgspec.json.Encoder().encode
_QUOTED = re.compile(r"'.*'", re.DOTALL)
_CACHED_MAX, _CACHED_BYTES_MAX = 256, 512
"""Of messages that arrive again and again with the same bytes: how many are cached decoded, and up to which length."""
_DOMAIN = Domain(name="Sparewatt link", version="1")

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
    NAMES = 14
    PROVIDER = 15
    OPEN = 16
    BODY = 17
    CREDIT = 18
    CANCEL = 19
    NODE_KEY = 20
    MARKET = 21
    LOOKUP = 22
    OUTCOME = 23
    LEASE_TASK = 24
    LEASE_ACT = 25
    LEASE_REPORT = 26
    LEASE_TRAFFIC = 31
    HEAD = 32
    DATA = 33
    END = 34
    FAIL = 35


_OPEN, _BODY = int(Opcode.OPEN), int(Opcode.BODY)
_SHORT_BODY_BYTES_MAX = 16 * KIB
"""Up to here, copying a body into one piece costs less than sending a second piece."""


class LinkFrame(NamedTuple):
    op: Opcode
    stream: int
    payload: bytes


class Hello(msgspec.Struct, frozen=True):
    """The node's address, the gateway's host as the node dialled it, and the node's nonce."""

    node_id: Address
    nonce: Hex32
    host: Text
    protocol: int = PROTOCOL_VERSION
    agent_version: ShortText = "unknown"
    token: Annotated[str, Meta(max_length=200)] | None = None
    takes_names: bool = False
    """Whether the node knows NAMES. An older one omits it."""


class Challenge(msgspec.Struct, frozen=True):
    nonce: Hex32
    gateway_version: ShortText


class ProofSignature(msgspec.Struct, frozen=True):
    """Of a `LinkProof`, what is read before it is known to be the node's: long specs are left unread."""

    signature: Signature


class LinkProof(msgspec.Struct, frozen=True):
    signature: Signature
    specs: NodeSpecs


class Welcome(msgspec.Struct, frozen=True):
    heartbeat_s: Annotated[float, Meta(gt=0, le=600)]
    gateway_version: ShortText
    takes_sheets: bool = False
    """Whether the gateway accepts sheets. An older gateway omits it and accepts receipts one by one only."""
    link_ports: Annotated[tuple[_Port, ...], Meta(max_length=GATEWAY_PROCESSES_MAX)] = ()
    """Where each process of the gateway accepts links, on the host that the node dialled; empty if there is only one
    process. A node that knows the field keeps a link to each; an older node serves the process that it reached."""
    link_port: _Port | None = None
    """The port of this process."""


class AssignedName(msgspec.Struct, frozen=True):
    """One of a node's models, as its network names it."""

    name: ModelName
    served_as: ModelName
    why: Text | None = None
    """Why it does not have the name that its id suggests."""
    price_notice: Text | None = None
    """What its price keeps from it, if it asks more than requests without a `max_price` pay."""


class ModelNames(msgspec.Struct, frozen=True):
    """What the network calls a node's models; for its owner, the node itself does not need it."""

    models: Annotated[tuple[AssignedName, ...], Meta(max_length=MODELS_NAMED_MAX)] = ()
    wanted_models: Annotated[tuple[ModelName, ...], Meta(max_length=WANTED_MODELS_MAX)] = ()
    """Models that clients have asked for and no node serves, the most wanted first."""


class Reject(msgspec.Struct, frozen=True):
    """`final`: dialling again with the same key and token cannot help."""

    reason: ShortText
    message: Text
    final: bool = True


class NodeKeyRequest(msgspec.Struct, frozen=True):
    """A gateway asks a node that offers leases to sign that its key serves a provider, at one registry of one chain."""

    chain_id: Annotated[int, Meta(ge=1, le=(1 << 63) - 1)]
    registry: Address
    provider: Address


class SignedNodeKey(msgspec.Struct, frozen=True):
    """The answer: an EIP-712 signature of `NodeKey(provider, nodeKey)`, or why the node refuses."""

    request: NodeKeyRequest
    signature: Signature | None = None
    refusal: Text | None = None


class Goodbye(msgspec.Struct, frozen=True):
    reason: Text


JobPath = Literal["/v1/chat/completions", "/v1/completions", "/v1/embeddings"]
"""The endpoints of a node's model server that a gateway may call."""


class JobRequest(msgspec.Struct, frozen=True):
    """A job: an HTTP POST for the node's model server. The body follows in BODY frames."""

    path: JobPath
    model: str
    body_bytes: Annotated[int, Meta(ge=0, le=REQUEST_BODY_BYTES_MAX)]
    stream: bool
    window_bytes: Annotated[int, Meta(ge=1, le=1 << 30)]
    promised_ttft_s: _Duration = 0.0
    """The time to first token that the gateway predicted. 0: none, and then the node does not refuse because of it."""
    prompt_tokens: Annotated[int, Meta(ge=0, le=1 << 32)] = 0
    """By the gateway's estimate, which the prediction is based on."""
    cached_tokens: Annotated[int, Meta(ge=0, le=1 << 32)] = 0
    """How many of them the gateway expects in the server's prefix cache. The prediction is based on it."""
    job: Annotated[str, Meta(max_length=64)] = ""
    """The job's id, for the node's receipt. An older gateway sends none, and takes no receipt."""
    continue_bytes: Annotated[int, Meta(ge=0, le=REQUEST_BODY_BYTES_MAX)] = 0
    """This many bytes at the end of the body are not part of the request, but the text of its answer so far, written by
    another node. Only nodes with the `Capability` to continue get such a job."""


class Credit(msgspec.Struct, frozen=True):
    n_bytes: Annotated[int, Meta(ge=1, le=1 << 30)]


class JobReplyHead(msgspec.Struct, frozen=True):
    status: Annotated[int, Meta(ge=100, le=599)]
    content_type: Text = "application/json"


class JobEnd(msgspec.Struct, frozen=True):
    """The reply is complete. It carries the node's fresh load, as a failure may."""

    load: NodeLoad
    first_byte_s: _Duration | None = None
    duration_s: _Duration = 0.0


FailCode = Literal[
    "refused", "leased", "backend_unreachable", "backend_broke", "backend_timeout", "link_lost", "protocol"
]


class JobFailure(msgspec.Struct, frozen=True):
    """The job ended early at the node. `refused`: it never started, so another node can take it without loss. `leased`:
    the node won a lease that needs what it worked with; the gateway asks the chain whether that is so."""

    code: FailCode
    message: Text
    load: NodeLoad | None = None
    ttft_s: _Duration = 0.0
    """Of a job refused as too late: the time to first token that the node expects. 0: it says nothing."""
    lease: Annotated[str, Meta(max_length=66)] = ""
    """The order of the lease for which the node broke off (`leased`)."""


_T = TypeVar("_T")
_decoders: dict[type, msgspec.json.Decoder[Any]] = {}
"""By type of message, each made on first use."""


def encode_frame(op: Opcode, stream: int = 0, payload: bytes = b"") -> bytes:
    if len(payload) > LINK_FRAME_BYTES_MAX:
        raise ValueError("a frame's payload is over the limit")
    return _pack_header(op, stream, len(payload)) + payload


def encode_raw_frame(op: int, stream: int, payload: bytes) -> bytes:
    """With an operation of another table than `Opcode`; the payload is within the limit."""
    return _pack_header(op, stream, len(payload)) + payload


def encode_message(op: Opcode, message: msgspec.Struct, *, stream: int = 0) -> bytes:
    return encode_frame(op, stream, _encode(message))


def encode_job(job: JobRequest, body: bytes, stream: int) -> list[bytes]:
    """OPEN and its BODY frames, as pieces to send. Nearly every body is short: then there is one piece."""
    meta = _encode(job)
    if len(body) <= _SHORT_BODY_BYTES_MAX and body:
        return [_pack_header(_OPEN, stream, len(meta)) + meta + _pack_header(_BODY, stream, len(body)) + body]
    pieces = range(0, len(body), LINK_FRAME_BYTES_MAX)
    frames = [encode_frame(Opcode.BODY, stream, body[at : at + LINK_FRAME_BYTES_MAX]) for at in pieces]
    return [encode_frame(Opcode.OPEN, stream, meta), *frames]


def split_frames(message: bytes) -> list[tuple[int, int, bytes]]:
    """Opcode, stream and payload of each frame of a WebSocket message. A hot path, so opcodes stay plain numbers.

    Raises ProtocolViolation if it does not consist of frames. The caller checks whether an opcode exists.
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
    """All frames of a WebSocket message. Raises ProtocolViolation."""
    return [LinkFrame(parse_opcode(op), stream, payload) for op, stream, payload in split_frames(message)]


def parse_opcode(op: int) -> Opcode:
    """Raises ProtocolViolation for an unknown number."""
    try:
        return Opcode(op)
    except ValueError:
        raise ProtocolViolation(f"unknown operation {op}") from None


def decode_message(payload: bytes, shape: type[_T]) -> _T:
    """Decode a control message. Raises ProtocolViolation."""
    if len(payload) > LINK_CONTROL_BYTES_MAX:
        raise ProtocolViolation("a control message is over the limit")
    decoder: msgspec.json.Decoder[_T] | None = _decoders.get(shape)
    if decoder is None:
        decoder = _decoders[shape] = msgspec.json.Decoder(shape)
    try:
        return decoder.decode(payload)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        what = _QUOTED.sub("'…'", str(error))[:200]  # it goes into logs, and the value is a stranger's
        raise ProtocolViolation(f"{shape.__name__}: {what}") from None


def decode_head(payload: bytes) -> JobReplyHead:
    """Nearly all heads are one of a few."""
    return _cached_head(payload) if len(payload) <= _CACHED_BYTES_MAX else decode_message(payload, JobReplyHead)


def decode_load(payload: bytes) -> NodeLoad:
    """Idle nodes send the same load with every heartbeat."""
    return _cached_load(payload) if len(payload) <= _CACHED_BYTES_MAX else decode_message(payload, NodeLoad)


@lru_cache(maxsize=_CACHED_MAX)
def _cached_head(payload: bytes) -> JobReplyHead:
    return decode_message(payload, JobReplyHead)


@lru_cache(maxsize=_CACHED_MAX)
def _cached_load(payload: bytes) -> NodeLoad:
    return decode_message(payload, NodeLoad)


def challenge_digest(*, host: str, node_id: NodeId, gateway_nonce: str, node_nonce: str) -> bytes:
    """What a node signs to prove that it holds its key: bound to this gateway and to both fresh nonces."""
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
