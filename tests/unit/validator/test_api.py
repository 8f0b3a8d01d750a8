"""Every path of the validator's API, and every way to ask it badly."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from sparewatt.market.match.model import MatchOutput
from sparewatt.market.outages.model import OutageOutput
from sparewatt.market.snapshots.model import SnapshotOutput
from sparewatt.protocol.api.validators import (
    EigenService,
    EpochTable,
    HeartbeatReply,
    MatchProgress,
    ValidatorStatus,
    attempts_path,
    progress_path,
    record_path,
    snapshot_path,
)
from sparewatt.protocol.contracts.match import Down, Heartbeat
from sparewatt.protocol.contracts.match_messages import MatchMessage, SignedVote, encode_message, write_object
from sparewatt.protocol.contracts.outage_messages import OutageMessage, SignedDown, encode_outage_message
from sparewatt.protocol.contracts.reasons import MessageRefusal, VoteRefusal
from sparewatt.protocol.contracts.snapshot_messages import (
    SignedHeartbeat,
    SnapshotMessage,
    SnapshotStatus,
    encode_snapshot_message,
)
from sparewatt.validator.api import ValidatorApi, reason_name
from sparewatt.validator.eigen_api import Health
from sparewatt.validator.server import ServerReply, ServerRequest
from tests.unit.market.match.match_scene import ORDER_ID, bid_for, commit_for

ID = "0x" + ORDER_ID.hex()
COMMIT = commit_for(bid_for(0))
STATUS = ValidatorStatus(
    operator="0x" + "11" * 20,
    vote_key="0x" + "22" * 20,
    chain_id=31337,
    genesis_hash="0x",
    task_manager="0x",
    url="http://127.0.0.1:8700",
    block_number=5,
    is_syncing=False,
    stake_uusd=1,
    pending_uusd=0,
    unbonding_uusd=0,
    weight=1,
    total_weight=4,
    validators=4,
    is_jailed=False,
    snapshot_epoch=2,
    open_matches=0,
    votes_cast=0,
    certificates_seen=0,
    certificates_signed=0,
    certificates_submitted=0,
    rounds_missed=0,
    messages_refused=0,
    heard_providers=0,
    run_id="a",
    version="0",
)


@dataclass
class Parts:
    """Matches, snapshots and what operators see, all in one."""

    output: MatchOutput = field(default_factory=MatchOutput)
    snapshot_output: SnapshotOutput = field(default_factory=SnapshotOutput)
    outage_output: OutageOutput = field(default_factory=OutageOutput)
    known: set[tuple[str, int]] = field(default_factory=lambda: {(ID, 0)})
    got: list[Any] = field(default_factory=list)
    looks: int = 0
    health_now: Health = Health.OK
    chain: Any = "Up"

    def receive(self, message: Any) -> Any:
        self.got.append(message)
        if isinstance(message, OutageMessage):
            return self.outage_output
        return self.output if isinstance(message, MatchMessage) else self.snapshot_output

    def knows(self, order_id: str, attempt: int) -> bool:
        return (order_id, attempt) in self.known

    async def progress(self, order_id: str, attempt: int, *, have: int, wait_s: float) -> MatchProgress | None:
        self.got.append((have, wait_s))
        if not self.knows(order_id, attempt):
            return None
        return MatchProgress(order_id=order_id, attempt=attempt, version=3, run_id="a", phase="vote", round=1)

    def record(self, order_id: str, attempt: int) -> bytes | None:
        return b'{"a":1}' if self.knows(order_id, attempt) else None

    def attempts_of(self, order_id: str) -> list[int]:
        return sorted(attempt for known, attempt in self.known if known == order_id)

    def hear(self, beat: SignedHeartbeat) -> HeartbeatReply:
        self.got.append(beat)
        return HeartbeatReply(challenge="0x" + "ab" * 32)

    def epoch_table(self, epoch: int) -> EpochTable | None:
        if epoch != 4:
            return None
        return EpochTable(epoch=4, height=9, root="0x", inputs_hash="0x", profiles=[], observations=[])

    def status(self) -> ValidatorStatus:
        return STATUS

    def health(self) -> Health:
        return self.health_now

    def services(self) -> list[EigenService]:
        return [EigenService(id="chain", name="Chain", description="-", status=self.chain)]

    def metrics(self) -> bytes:
        return b"eigen_performance_score 100\n"

    async def look(self) -> None:
        self.looks += 1


@pytest.fixture
def parts() -> Parts:
    return Parts()


async def ask(parts: Parts, method: str, path: str, body: bytes = b"", **query: str) -> ServerReply:
    api = ValidatorApi(parts, parts, parts, parts, parts.look)
    return await api.handle(ServerRequest(method, path, query, body))


def decoded(reply: ServerReply) -> Any:
    return msgspec.json.decode(reply.body)


async def test_a_message_is_handed_on_and_its_answer_given(parts: Parts) -> None:
    parts.output = MatchOutput(code=MessageRefusal.LATE, late_by_ms=12, replies=[COMMIT])
    reply = await ask(parts, "POST", "/v1/match/messages", encode_message(COMMIT))
    assert reply.status == 200
    assert decoded(reply) == {
        "code": 32,
        "reason": "LATE",
        "late_by_ms": 12,
        "replies": [msgspec.json.decode(encode_message(COMMIT))],
    }
    assert (parts.got, parts.looks) == ([COMMIT], 0)


async def test_a_vote_on_an_outage_is_handed_on_and_answered_with_what_is_held(parts: Parts) -> None:
    vote = SignedDown(Down(b"\1" * 32, 2, "0x" + "33" * 20, 1_000), b"\7" * 65)
    parts.outage_output = OutageOutput(code=MessageRefusal.DUPLICATE, replies=[vote])
    reply = await ask(parts, "POST", "/v1/outages/messages", encode_outage_message(vote))
    assert (parts.got, decoded(reply)["reason"]) == ([vote], "DUPLICATE")
    assert decoded(reply)["replies"] == [msgspec.json.decode(encode_outage_message(vote))]


async def test_a_message_about_an_unknown_order_has_the_chain_looked_at_first(parts: Parts) -> None:
    parts.known = set()
    await ask(parts, "POST", "/v1/match/messages", encode_message(COMMIT))
    assert (parts.looks, len(parts.got)) == (1, 1)


@pytest.mark.parametrize(
    "path", ["/v1/match/messages", "/v1/heartbeats", "/v1/snapshots/messages", "/v1/outages/messages"]
)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"\xff",
        b'{"type":"commit"}',
        b'{"type":7}',
        b'{"type":[]}',
        b'{"type":"\xff"}',
        b"[" * 5_000,
    ],
)
async def test_a_body_that_is_no_message_is_400_and_changes_nothing(parts: Parts, path: str, body: bytes) -> None:
    reply = await ask(parts, "POST", path, body)
    assert (reply.status, parts.got) == (400, [])
    assert decoded(reply)["error"]["message"]


async def test_a_heartbeat_gets_the_next_challenge(parts: Parts) -> None:
    beat = SignedHeartbeat(Heartbeat("0x" + "11" * 20, "0x" + "22" * 20, bytes(32), 1, 5, ()), b"\1" * 65)
    reply = await ask(parts, "POST", "/v1/heartbeats", msgspec.json.encode(write_object(beat)))
    assert decoded(reply)["challenge"] == "0x" + "ab" * 32
    assert parts.got == [beat]


async def test_a_message_about_a_snapshot_is_answered_likewise(parts: Parts) -> None:
    message: SnapshotMessage = SnapshotStatus(3, 1, 0, ())
    parts.snapshot_output = SnapshotOutput(code=MessageRefusal.BAD_SIGNATURE, replies=[message])
    reply = decoded(await ask(parts, "POST", "/v1/snapshots/messages", encode_snapshot_message(message)))
    assert (reply["reason"], reply["replies"][0]["type"]) == ("BAD_SIGNATURE", "snapshot_status")


async def test_progress_is_waited_for_within_bounds(parts: Parts) -> None:
    reply = await ask(parts, "GET", progress_path(ID, 0), have="2", wait_ms="60000")
    assert (decoded(reply)["version"], decoded(reply)["phase"]) == (3, "vote")
    assert parts.got == [(2, 5.0)]
    await ask(parts, "GET", progress_path(ID, 0))
    assert parts.got[1] == (0, 0.0)


@pytest.mark.parametrize("query", [{"have": "-1"}, {"have": "x"}, {"wait_ms": "1e3"}, {"have": "9" * 30}, {"have": ""}])
async def test_numbers_that_are_none_are_400(parts: Parts, query: dict[str, Any]) -> None:
    assert (await ask(parts, "GET", progress_path(ID, 0), **query)).status == 400


async def test_records_and_tables_are_given(parts: Parts) -> None:
    assert (await ask(parts, "GET", record_path(ID, 0))).body == b'{"a":1}'
    assert decoded(await ask(parts, "GET", snapshot_path(4)))["height"] == 9


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v1",
        progress_path(ID, 1),
        record_path(ID, 1),
        progress_path(ID, 2**32),
        progress_path(ID.upper(), 0),
        progress_path("0x12", 0),
        snapshot_path(5),
        "/v1/snapshots/-1",
        "/eigen/node/services/unknown/health",
        "/eigen",
        "/v1/match/../../etc/passwd",
    ],
)
async def test_what_is_not_there_is_404(parts: Parts, path: str) -> None:
    assert (await ask(parts, "GET", path)).status == 404
    assert (await ask(parts, "POST", path)).status == 404


async def test_other_methods_are_405(parts: Parts) -> None:
    reply = await ask(parts, "DELETE", "/v1/validator")
    assert (reply.status, reply.headers["Allow"]) == (405, "GET, POST")


async def test_operators_see_status_and_metrics(parts: Parts) -> None:
    assert decoded(await ask(parts, "GET", "/v1/validator"))["block_number"] == 5
    reply = await ask(parts, "GET", "/metrics")
    assert (reply.content_type, reply.body) == ("text/plain", b"eigen_performance_score 100\n")


@pytest.mark.parametrize(("health", "status"), [(Health.OK, 200), (Health.SYNCING, 206), (Health.DOWN, 503)])
async def test_health_is_a_status_code(parts: Parts, health: Health, status: int) -> None:
    parts.health_now = health
    assert (await ask(parts, "GET", "/eigen/node/health")).status == status


async def test_the_node_api_of_avs_operators(parts: Parts) -> None:
    node = decoded(await ask(parts, "GET", "/eigen/node"))
    assert (node["node_name"], node["spec_version"]) == ("sparewatt-validator", "v0.0.1")
    (service,) = decoded(await ask(parts, "GET", "/eigen/node/services"))["services"]
    assert set(service) == {"id", "name", "description", "status"}
    for chain, status in (("Up", 200), ("Initializing", 206), ("Down", 503)):
        parts.chain = chain
        assert (await ask(parts, "GET", "/eigen/node/services/chain/health")).status == status


async def test_another_version_of_the_node_api_is_not_found(parts: Parts) -> None:
    for version in ("0.0.1", "v0.0.1"):
        assert (await ask(parts, "GET", "/eigen/node", version=version)).status == 200
    reply = await ask(parts, "GET", "/eigen/node/health", version="0.0.2")
    assert (reply.status, decoded(reply)) == (404, {"message": "API version not found"})
    unknown = await ask(parts, "GET", "/eigen/node/services/unknown/health")
    assert decoded(unknown) == {"message": "Service not found"}


def test_codes_have_the_names_of_the_protocol() -> None:
    assert reason_name(0) is None
    assert reason_name(MessageRefusal.UNBONDED) == "UNBONDED"
    assert reason_name(VoteRefusal.WRONG_RESULT) == "WRONG_RESULT"
    assert SignedVote.tag == "vote"


async def test_the_attempts_with_a_record_are_listed(parts: Parts) -> None:
    parts.known.add((ID, 2))
    reply = await ask(parts, "GET", attempts_path(ID))
    assert msgspec.json.decode(reply.body) == {"order_id": ID, "attempts": [0, 2]}
    assert msgspec.json.decode((await ask(parts, "GET", attempts_path("0x" + "00" * 32))).body)["attempts"] == []
