"""The handshake of a link: challenge-response authentication of a node by its signing key, before any job.

The node signs the host name it dialled and a nonce from each side. So a recorded proof cannot be replayed, and a
gateway in the middle cannot pass a node's proof on to another gateway. Whether the node may join (its join token) is
decided afterwards, by the gateway.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from sparewatt.core.errors import JoinRefused, LinkFlooded, LinkLost, ProtocolViolation
from sparewatt.core.ids import NodeId
from sparewatt.core.limits import KIB, LINK_CONTROL_BYTES_MAX
from sparewatt.core.rng import Rng
from sparewatt.core.versions import version_conflict
from sparewatt.link.sockets import LINK_FIRST_MESSAGE_S, LINK_HANDSHAKE_S, Socket
from sparewatt.protocol.link.frames import (
    FRAME_HEADER_BYTES,
    PROTOCOL_VERSION,
    Challenge,
    Hello,
    LinkProof,
    Opcode,
    ProofSignature,
    Reject,
    Welcome,
    challenge_digest,
    decode_frames,
    decode_message,
    encode_message,
)
from sparewatt.protocol.link.node_report import NodeSpecs
from sparewatt.protocol.signing import BadSignature, SigningKey, recover_address

HANDSHAKE_BYTES_MAX = LINK_CONTROL_BYTES_MAX + FRAME_HEADER_BYTES
HELLO_BYTES_MAX = 4 * KIB
"""Of the first message, which anybody may send: names, a nonce and a token."""
_DEFAULT_PORTS = {"http": 80, "ws": 80, "https": 443, "wss": 443}


def host_of(url: str) -> str:
    """The name that the node signs: `host:port` in lower case, always with the port."""
    parts = urlsplit(url)
    if parts.hostname is None:
        raise ValueError(f"{url!r} names no host")
    return f"{parts.hostname.lower()}:{parts.port or _DEFAULT_PORTS.get(parts.scheme, 80)}"


@dataclass(frozen=True, slots=True)
class AuthenticatedNode:
    """A node that has proved possession of its key. Whether it may join is decided later."""

    node_id: NodeId
    token: str | None
    proof: bytes = field(repr=False)
    """With its report, checked. As it came: decoded it takes ten times the memory, and the database may be slow."""
    takes_names: bool = False

    def read_specs(self) -> NodeSpecs:
        return decode_message(self.proof, LinkProof).specs


async def authenticate_node(
    socket: Socket,
    *,
    hosts: Collection[str],
    gateway_version: str,
    rng: Rng,
    on_hello: Callable[[NodeId], None] = lambda _node: None,
) -> AuthenticatedNode:
    """The gateway's half. Raises JoinRefused with a message for the node, ProtocolViolation or LinkLost.

    `on_hello`: called with the node that the peer says to be, before it has proved that.
    """
    async with _handshake_timeout():
        async with _handshake_timeout(LINK_FIRST_MESSAGE_S):
            hello = decode_message(await _receive(socket, Opcode.HELLO, bytes_max=HELLO_BYTES_MAX), Hello)
        _check_hello(hello, hosts=hosts, gateway_version=gateway_version)
        on_hello(NodeId(hello.node_id))
        nonce = rng.randbytes(32).hex()
        socket.send(encode_message(Opcode.CHALLENGE, Challenge(nonce=nonce, gateway_version=gateway_version)))
        proof = await _receive(socket, Opcode.PROOF)
    node_id = NodeId(hello.node_id)
    digest = challenge_digest(host=hello.host, node_id=node_id, gateway_nonce=nonce, node_nonce=hello.nonce)
    signature = decode_message(proof, ProofSignature).signature
    if not _signed_by(node_id, digest, bytes.fromhex(signature)):
        raise JoinRefused(f"The signature does not belong to node {node_id}.", reason="bad_signature")
    return AuthenticatedNode(node_id=node_id, token=hello.token, proof=proof, takes_names=hello.takes_names)


async def authenticate_to_gateway(
    socket: Socket,
    *,
    key: SigningKey,
    host: str,
    token: str | None,
    specs: NodeSpecs | None,
    agent_version: str,
    rng: Rng,
) -> Welcome:
    """The node's half. Raises JoinRefused with the gateway's reason, ProtocolViolation or LinkLost.

    `specs`: None for a socket that carries no jobs, of a node that has joined already.
    """
    nonce = rng.randbytes(32).hex()
    hello = Hello(
        node_id=key.address, nonce=nonce, host=host, token=token, agent_version=agent_version, takes_names=True
    )
    async with _handshake_timeout():
        socket.send(encode_message(Opcode.HELLO, hello))
        challenge = decode_message(await _receive(socket, Opcode.CHALLENGE, or_reject=True), Challenge)
        _check_versions(agent=agent_version, gateway=challenge.gateway_version)
        digest = challenge_digest(host=host, node_id=key.address, gateway_nonce=challenge.nonce, node_nonce=nonce)
        signature = key.sign(digest).hex()
        proof = ProofSignature(signature) if specs is None else LinkProof(signature=signature, specs=specs)
        socket.send(encode_message(Opcode.PROOF, proof))
        return decode_message(await _receive(socket, Opcode.WELCOME, or_reject=True), Welcome)


def _check_hello(hello: Hello, *, hosts: Collection[str], gateway_version: str) -> None:
    if hello.protocol != PROTOCOL_VERSION:
        older, newer = ("gateway", "agent") if hello.protocol > PROTOCOL_VERSION else ("agent", "gateway")
        raise JoinRefused(
            f"The {newer} speaks a newer link protocol: update the {older} "
            f"(agent {hello.agent_version}, gateway {gateway_version}).",
            reason="protocol_version",
        )
    if hello.host not in hosts:
        raise JoinRefused(
            f"This gateway is not {hello.host!r}. Join under the address it prints, or start it with --public-url.",
            reason="wrong_host",
        )
    _check_versions(agent=hello.agent_version, gateway=gateway_version)


def _check_versions(*, agent: str, gateway: str) -> None:
    """Both sides check: a rule about compatibility may be known only to the newer release."""
    if (conflict := version_conflict(agent=agent, gateway=gateway)) is not None:
        raise JoinRefused(conflict, reason="version_apart")


def _signed_by(node_id: NodeId, digest: bytes, signature: bytes) -> bool:
    try:
        return recover_address(digest, signature) == node_id
    except BadSignature:
        return False


@asynccontextmanager
async def _handshake_timeout(seconds: float | None = None) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(LINK_HANDSHAKE_S if seconds is None else seconds):
            yield
    except TimeoutError:
        raise LinkLost("the other end did not finish the handshake in time") from None


async def _receive(
    socket: Socket, expected: Opcode, *, or_reject: bool = False, bytes_max: int = HANDSHAKE_BYTES_MAX
) -> bytes:
    """The payload of a message that holds just the expected frame. `or_reject`: a REJECT is raised as its reason.

    The size is checked before parsing, since the peer is not authenticated yet.
    """
    message = await socket.receive()
    if len(message) > bytes_max:
        raise LinkFlooded("a message of the handshake is too long")
    frames = decode_frames(message)
    if len(frames) != 1:
        raise ProtocolViolation("a message of the handshake holds one frame")
    frame = frames[0]
    if or_reject and frame.op is Opcode.REJECT:
        reject = decode_message(frame.payload, Reject)
        raise JoinRefused(reject.message, reason=reject.reason) if reject.final else LinkLost(reject.message)
    if frame.op is not expected or frame.stream:
        raise ProtocolViolation(f"expected {expected.name}")
    return frame.payload
