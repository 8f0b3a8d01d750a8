from __future__ import annotations

import asyncio
from collections.abc import Collection

import msgspec
import pytest

from sparewatt.core.errors import JoinRefused, LinkLost, ProtocolViolation
from sparewatt.core.ids import NodeId
from sparewatt.core.limits import LINK_CONTROL_BYTES_MAX
from sparewatt.core.rng import seeded
from sparewatt.link import handshake
from sparewatt.link.handshake import AuthenticatedNode, authenticate_node, authenticate_to_gateway, host_of
from sparewatt.link.sockets import Socket
from sparewatt.protocol.link.frames import (
    PROTOCOL_VERSION,
    Challenge,
    Hello,
    LinkProof,
    Opcode,
    Reject,
    Welcome,
    challenge_digest,
    decode_frames,
    decode_message,
    encode_frame,
    encode_message,
)
from sparewatt.protocol.signing import SigningKey
from sparewatt.testing.memory_socket import socket_pair
from tests.unit.protocol.reports import SPECS
from tests.waiting import CEILING_S

HOST = "gateway.example:443"
KEY, OTHER = SigningKey.generate(rng=seeded(1)), SigningKey.generate(rng=seeded(2))
WELCOME = Welcome(heartbeat_s=5.0, gateway_version="0.2.0")
HELLO = Hello(node_id=KEY.address, nonce="0f" * 32, host=HOST, token="join-sw-1", agent_version="0.1.0")


async def gateway(socket: Socket, *, hosts: Collection[str] = (HOST,), seed: int = 10) -> AuthenticatedNode:
    node = await authenticate_node(socket, hosts=hosts, gateway_version="0.2.0", rng=seeded(seed))
    socket.send(encode_message(Opcode.WELCOME, WELCOME))
    return node


async def node(socket: Socket, *, key: SigningKey = KEY, host: str = HOST) -> Welcome:
    return await authenticate_to_gateway(
        socket, key=key, host=host, token="join-sw-1", specs=SPECS, agent_version="0.1.0", rng=seeded(20)
    )


def proof_for(challenge: Challenge, *, key: SigningKey, hello: Hello = HELLO, host: str = HOST) -> LinkProof:
    digest = challenge_digest(
        host=host, node_id=NodeId(hello.node_id), gateway_nonce=challenge.nonce, node_nonce=hello.nonce
    )
    return LinkProof(signature=key.sign(digest).hex(), specs=SPECS)


class Impostor:
    """A node that says what it likes, against a gateway that does its half."""

    def __init__(self) -> None:
        self.socket, far = socket_pair()
        self.gateway = asyncio.create_task(gateway(far))

    async def challenged(self, hello: Hello = HELLO) -> Challenge:
        self.socket.send(encode_message(Opcode.HELLO, hello))
        (frame,) = decode_frames(await self.socket.receive())
        assert frame.op is Opcode.CHALLENGE
        return decode_message(frame.payload, Challenge)

    async def prove(self, proof: LinkProof) -> AuthenticatedNode:
        self.socket.send(encode_message(Opcode.PROOF, proof))
        return await self.gateway


# good


async def test_a_node_that_proves_its_key_is_authenticated() -> None:
    near, far = socket_pair()
    welcome, authenticated = await asyncio.gather(node(near), gateway(far))
    assert welcome == WELCOME
    assert (authenticated.node_id, authenticated.token, authenticated.takes_names) == (KEY.address, "join-sw-1", True)
    assert authenticated.read_specs() == SPECS


async def test_a_node_without_a_token_sends_none() -> None:
    impostor = Impostor()
    hello = msgspec.structs.replace(HELLO, token=None)
    challenge = await impostor.challenged(hello)
    assert (await impostor.prove(proof_for(challenge, key=KEY, hello=hello))).token is None


# forged


async def test_a_node_that_claims_anothers_id_is_refused() -> None:
    impostor = Impostor()
    challenge = await impostor.challenged()
    with pytest.raises(JoinRefused) as refused:
        await impostor.prove(proof_for(challenge, key=OTHER))
    assert refused.value.reason == "bad_signature"


@pytest.mark.parametrize("signature", ["00" * 65, "ff" * 65, "01" * 64 + "1b", "01" * 64 + "00"])
async def test_a_malformed_signature_is_refused(signature: str) -> None:
    impostor = Impostor()
    await impostor.challenged()
    with pytest.raises(JoinRefused) as refused:
        await impostor.prove(LinkProof(signature=signature, specs=SPECS))
    assert refused.value.reason == "bad_signature"


async def test_a_proof_from_an_earlier_session_is_refused() -> None:
    """The same hello, word for word: only the gateway's nonce differs."""
    first = Impostor()
    recorded = proof_for(await first.challenged(), key=KEY)
    await first.prove(recorded)
    near, far = socket_pair()
    later = asyncio.create_task(gateway(far, seed=11))
    near.send(encode_message(Opcode.HELLO, HELLO))
    await near.receive()
    near.send(encode_message(Opcode.PROOF, recorded))
    with pytest.raises(JoinRefused) as refused:
        await later
    assert refused.value.reason == "bad_signature"


async def test_a_proof_for_another_gateway_is_refused() -> None:
    """A gateway in the middle passes the challenge on to a node that believes to have dialled it."""
    impostor = Impostor()
    challenge = await impostor.challenged()
    with pytest.raises(JoinRefused) as refused:
        await impostor.prove(proof_for(challenge, key=KEY, host="middle.example:443"))
    assert refused.value.reason == "bad_signature"


async def test_no_two_challenges_are_equal() -> None:
    nonces = set()
    for seed in range(20):
        near, far = socket_pair()
        running = asyncio.create_task(gateway(far, seed=seed))
        near.send(encode_message(Opcode.HELLO, HELLO))
        (frame,) = decode_frames(await near.receive())
        nonces.add(decode_message(frame.payload, Challenge).nonce)
        running.cancel()
    assert len(nonces) == 20


# wrong


async def test_a_node_that_dialled_another_host_name_is_refused_with_that_reason() -> None:
    near, far = socket_pair()
    near.send(encode_message(Opcode.HELLO, msgspec.structs.replace(HELLO, host="other.example:443")))
    with pytest.raises(JoinRefused, match=r"other\.example:443") as refused:
        await gateway(far)
    assert refused.value.reason == "wrong_host"


@pytest.mark.parametrize(
    ("protocol", "advice"), [(PROTOCOL_VERSION + 1, "update the gateway"), (PROTOCOL_VERSION - 1, "update the agent")]
)
async def test_another_protocol_version_is_refused_naming_the_side_to_update(protocol: int, advice: str) -> None:
    near, far = socket_pair()
    near.send(encode_message(Opcode.HELLO, msgspec.structs.replace(HELLO, protocol=protocol)))
    with pytest.raises(JoinRefused, match=rf"{advice} \(agent 0.1.0, gateway 0.2.0\)") as refused:
        await gateway(far)
    assert refused.value.reason == "protocol_version"


@pytest.mark.parametrize(
    ("version", "advice"), [("0.4.0", "Update the gateway"), ("0.0.9", "Update the agent"), ("1.0.0", "the gateway")]
)
async def test_an_agent_of_an_incompatible_version_is_refused_naming_the_side_to_update(
    version: str, advice: str
) -> None:
    near, far = socket_pair()
    near.send(encode_message(Opcode.HELLO, msgspec.structs.replace(HELLO, agent_version=version)))
    with pytest.raises(JoinRefused, match=advice) as refused:
        await gateway(far)
    assert refused.value.reason == "version_apart"


async def test_an_agent_one_minor_version_newer_gets_its_challenge() -> None:
    impostor = Impostor()
    hello = msgspec.structs.replace(HELLO, agent_version="0.3.1")
    challenge = await impostor.challenged(hello)
    assert (await impostor.prove(proof_for(challenge, key=KEY, hello=hello))).node_id == KEY.address


async def test_a_node_leaves_a_gateway_of_an_incompatible_version() -> None:
    near, far = socket_pair()
    joining = asyncio.create_task(node(near))
    await far.receive()
    far.send(encode_message(Opcode.CHALLENGE, Challenge(nonce="0a" * 32, gateway_version="0.3.0")))
    with pytest.raises(JoinRefused, match="Update the agent"):
        await joining


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"GET / HTTP/1.1", id="http"),
        pytest.param(encode_frame(Opcode.HELLO, 0, b"{}"), id="empty-hello"),
        pytest.param(encode_message(Opcode.HELLO, HELLO, stream=1), id="on-a-stream"),
        pytest.param(encode_message(Opcode.HELLO, HELLO) * 2, id="twice"),
        pytest.param(encode_message(Opcode.PROOF, LinkProof(signature="00" * 65, specs=SPECS)), id="proof-first"),
        pytest.param(encode_message(Opcode.REJECT, Reject(reason="no", message="I refuse you")), id="reject"),
        pytest.param(encode_frame(Opcode.CANCEL) * (LINK_CONTROL_BYTES_MAX // 9 + 2), id="flood-of-frames"),
    ],
)
async def test_a_peer_that_does_not_say_hello_breaks_the_protocol(message: bytes) -> None:
    near, far = socket_pair()
    near.send(message)
    with pytest.raises(ProtocolViolation):
        await gateway(far)


async def test_a_message_too_long_for_a_handshake_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "decode_frames", lambda _: pytest.fail("it was read"))
    near, far = socket_pair()
    near.send(bytes(handshake.HANDSHAKE_BYTES_MAX + 1))
    with pytest.raises(ProtocolViolation):
        await gateway(far)


async def test_a_gateway_that_does_not_challenge_breaks_the_protocol() -> None:
    near, far = socket_pair()
    far.send(encode_message(Opcode.WELCOME, WELCOME))
    with pytest.raises(ProtocolViolation, match="CHALLENGE"):
        await node(near)


# time and refusal


@pytest.mark.parametrize("half", [gateway, node])
async def test_a_silent_peer_times_out(half: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "LINK_HANDSHAKE_S", 0.01)
    near, _ = socket_pair()
    async with asyncio.timeout(CEILING_S):
        with pytest.raises(LinkLost, match="in time"):
            await (gateway(near) if half is gateway else node(near))


async def test_a_peer_has_less_time_for_its_first_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "LINK_FIRST_MESSAGE_S", 0.01)
    near, _ = socket_pair()
    async with asyncio.timeout(CEILING_S):
        with pytest.raises(LinkLost, match="in time"):
            await gateway(near)
    impostor = Impostor()
    challenge = await impostor.challenged()
    await asyncio.sleep(0.02)  # longer than it had for its first message
    assert (await impostor.prove(proof_for(challenge, key=KEY))).node_id == KEY.address


async def test_who_a_peer_says_to_be_is_told_before_it_proves_it() -> None:
    near, far = socket_pair()
    claimed: list[NodeId] = []
    half = authenticate_node(far, hosts={HOST}, gateway_version="0.2.0", rng=seeded(1), on_hello=claimed.append)
    task = asyncio.create_task(half)
    near.send(encode_message(Opcode.HELLO, HELLO))
    await near.receive()
    assert claimed == [KEY.address]
    near.close()
    with pytest.raises(LinkLost):
        await task


async def test_a_peer_that_stops_halfway_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "LINK_HANDSHAKE_S", 0.01)
    impostor = Impostor()
    await impostor.challenged()
    async with asyncio.timeout(CEILING_S):
        with pytest.raises(LinkLost, match="in time"):
            await impostor.gateway


@pytest.mark.parametrize("half", [gateway, node])
async def test_a_peer_that_leaves_is_lost(half: object) -> None:
    near, far = socket_pair()
    far.close()
    with pytest.raises(LinkLost):
        await (gateway(near) if half is gateway else node(near))


async def test_a_final_reject_is_a_join_refused() -> None:
    near, far = socket_pair()
    far.send(encode_message(Opcode.REJECT, Reject(reason="token_used", message="It has been used.")))
    with pytest.raises(JoinRefused, match="has been used") as refused:
        await node(near)
    assert refused.value.reason == "token_used"


async def test_a_reject_that_is_not_final_is_a_lost_link() -> None:
    near, far = socket_pair()
    far.send(encode_message(Opcode.REJECT, Reject(reason="unavailable", message="Try again.", final=False)))
    with pytest.raises(LinkLost, match="Try again"):
        await node(near)


async def test_a_reject_may_come_instead_of_the_welcome() -> None:
    near, far = socket_pair()
    joining = asyncio.create_task(node(near))
    await far.receive()
    far.send(encode_message(Opcode.CHALLENGE, Challenge(nonce="00" * 32, gateway_version="0.2.0")))
    await far.receive()
    far.send(encode_message(Opcode.REJECT, Reject(reason="bad_signature", message="Not yours.")))
    with pytest.raises(JoinRefused, match="Not yours"):
        await joining


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://Gateway.Example", "gateway.example:443"),
        ("https://gateway.example:8443/v1", "gateway.example:8443"),
        ("http://127.0.0.1", "127.0.0.1:80"),
        ("ws://127.0.0.1:8484/link/v1", "127.0.0.1:8484"),
        ("wss://h", "h:443"),
        ("http://[::1]:8484", "::1:8484"),
    ],
)
def test_the_signed_host_has_a_port_and_is_lower_case(url: str, host: str) -> None:
    assert host_of(url) == host


@pytest.mark.parametrize("url", ["", "gateway.example", "https://", "https://h:port"])
def test_an_address_without_a_host_cannot_be_signed(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        host_of(url)
