"""The HTTP API of a validator: messages, heartbeats, progress and records of matches, status, health and metrics.

What participants post is authenticated by the signatures within, so there are no keys or sessions. A body that is no
message is 400; a message that a rule refuses is 200 with its reason code, as the protocol has it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from sparewatt.core.errors import InvalidField
from sparewatt.market.match.model import MatchOutput
from sparewatt.market.outages.model import OutageOutput
from sparewatt.market.snapshots.model import SnapshotOutput
from sparewatt.protocol.api.validators import (
    HEARTBEATS_PATH,
    MESSAGES_PATH,
    OUTAGE_MESSAGES_PATH,
    SNAPSHOT_MESSAGES_PATH,
    STATUS_PATH,
    WAIT_MS_MAX,
    EpochTable,
    HeartbeatReply,
    MatchProgress,
    MessageReply,
    RecordedAttempts,
    ValidatorStatus,
)
from sparewatt.protocol.contracts.match_messages import MatchMessage, decode_message, encode_message
from sparewatt.protocol.contracts.outage_messages import OutageMessage, decode_outage_message, encode_outage_message
from sparewatt.protocol.contracts.reasons import MessageRefusal, VoteRefusal
from sparewatt.protocol.contracts.snapshot_messages import (
    SignedHeartbeat,
    SnapshotMessage,
    decode_heartbeat,
    decode_snapshot_message,
    encode_snapshot_message,
)
from sparewatt.validator.eigen_api import EIGEN_PATH, ObservedHealth, eigen_reply
from sparewatt.validator.match_host import key_of
from sparewatt.validator.metrics import METRICS_CONTENT_TYPE
from sparewatt.validator.server import ServerReply, ServerRequest, error_reply

_MATCH = re.compile(r"/v1/match/(0x[0-9a-f]{64})/([0-9]{1,10})(/record)?")
_ORDER = re.compile(r"/v1/match/(0x[0-9a-f]{64})")
_EPOCH = re.compile(r"/v1/snapshots/([0-9]{1,10})")
_NUMBER = re.compile(r"[0-9]{1,18}")
_INT32_END = 1 << 32


class Matches(Protocol):
    """Implemented by MatchHost."""

    def receive(self, message: MatchMessage) -> MatchOutput: ...

    def knows(self, order_id: str, attempt: int) -> bool: ...

    async def progress(self, order_id: str, attempt: int, *, have: int, wait_s: float) -> MatchProgress | None: ...

    def record(self, order_id: str, attempt: int) -> bytes | None: ...

    def attempts_of(self, order_id: str) -> list[int]: ...


class Snapshots(Protocol):
    """Implemented by SnapshotHost."""

    def receive(self, message: SnapshotMessage) -> SnapshotOutput: ...

    def hear(self, beat: SignedHeartbeat) -> HeartbeatReply: ...

    def epoch_table(self, epoch: int) -> EpochTable | None: ...


class Outages(Protocol):
    """Implemented by OutageHost."""

    def receive(self, message: OutageMessage) -> OutageOutput: ...


class Observed(ObservedHealth, Protocol):
    """What operators see."""

    def status(self) -> ValidatorStatus: ...

    def metrics(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class ValidatorApi:
    matches: Matches
    snapshots: Snapshots
    outages: Outages
    observed: Observed
    look_soon: Callable[[], Awaitable[None]]
    """Looks at the chain at once: a message about an order that is not known may be ahead of our last look."""

    async def handle(self, request: ServerRequest) -> ServerReply:
        try:
            match request.method:
                case "POST":
                    return await self._post(request)
                case "GET" | "HEAD":
                    return await self._get(request)
        except InvalidField as error:
            return error_reply(400, error.code, error.message)
        return error_reply(405, "method_not_allowed", "GET or POST.", {"Allow": "GET, POST"})

    async def _post(self, request: ServerRequest) -> ServerReply:
        match request.path:
            case path if path == MESSAGES_PATH:
                return await self._match_message(decode_message(request.body))
            case path if path == HEARTBEATS_PATH:
                return _json(self.snapshots.hear(decode_heartbeat(request.body)))
            case path if path == SNAPSHOT_MESSAGES_PATH:
                output = self.snapshots.receive(decode_snapshot_message(request.body))
                replies = [_object(encode_snapshot_message(reply)) for reply in output.replies]
                return _json(MessageReply(code=output.code, reason=reason_name(output.code), replies=replies))
            case path if path == OUTAGE_MESSAGES_PATH:
                return self._outage_message(decode_outage_message(request.body))
        return _not_found(request.path)

    def _outage_message(self, message: OutageMessage) -> ServerReply:
        output = self.outages.receive(message)
        replies = [_object(encode_outage_message(reply)) for reply in output.replies]
        return _json(MessageReply(code=output.code, reason=reason_name(output.code), replies=replies))

    async def _match_message(self, message: MatchMessage) -> ServerReply:
        if not self.matches.knows(*key_of(message)):
            await self.look_soon()
        output = self.matches.receive(message)
        reply = MessageReply(
            code=output.code,
            reason=reason_name(output.code),
            late_by_ms=output.late_by_ms,
            replies=[_object(encode_message(reply)) for reply in output.replies],
        )
        return _json(reply)

    async def _get(self, request: ServerRequest) -> ServerReply:
        path = request.path
        if match := _MATCH.fullmatch(path):
            return await self._match(request, match[1], int(match[2]), is_record=match[3] is not None)
        if match := _ORDER.fullmatch(path):
            return _json(RecordedAttempts(order_id=match[1], attempts=self.matches.attempts_of(match[1])))
        if match := _EPOCH.fullmatch(path):
            table = self.snapshots.epoch_table(int(match[1]))
            return _json(table) if table is not None else _not_found(path)
        match path:
            case path if path == STATUS_PATH:
                return _json(self.observed.status())
            case "/metrics":
                return ServerReply(self.observed.metrics(), content_type=METRICS_CONTENT_TYPE)
        return eigen_reply(self.observed, path, request.query) if path.startswith(EIGEN_PATH) else _not_found(path)

    async def _match(self, request: ServerRequest, order_id: str, attempt: int, *, is_record: bool) -> ServerReply:
        if attempt >= _INT32_END:
            return _not_found(request.path)
        if not self.matches.knows(order_id, attempt) and not is_record:
            await self.look_soon()
        if is_record:
            record = self.matches.record(order_id, attempt)
            return ServerReply(record) if record is not None else _not_found(request.path)
        have, wait_ms = _number(request, "have"), min(WAIT_MS_MAX, _number(request, "wait_ms"))
        progress = await self.matches.progress(order_id, attempt, have=have, wait_s=wait_ms / 1000)
        return _json(progress) if progress is not None else _not_found(request.path)


def reason_name(code: int) -> str | None:
    """None for an acknowledgement."""
    for codes in (MessageRefusal, VoteRefusal):
        if code in {each.value for each in codes}:
            return codes(code).name
    return None


def _number(request: ServerRequest, name: str) -> int:
    text = request.query.get(name, "0")
    if not _NUMBER.fullmatch(text):
        raise InvalidField(f"{name} is a whole number.", param=name)
    return int(text)


def _object(body: bytes) -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(body)
    return decoded


def _json(value: msgspec.Struct) -> ServerReply:
    return ServerReply(msgspec.json.encode(value))


def _not_found(path: str) -> ServerReply:
    return error_reply(404, "not_found", f"There is nothing at {path[:100]}.")
