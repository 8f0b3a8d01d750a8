"""Speaks to validators over HTTP: messages of a match, its progress by long poll, and heartbeats.

Each call has a time limit and a bound on its answer, redirects are not followed, and what comes back is a stranger's
word: it is decoded here and judged by the caller. No failure is raised but NoAnswer.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

import msgspec

from sparewatt.core.limits import MIB
from sparewatt.machine.stranger_http import DialRules, NoAnswer, StrangerClient
from sparewatt.node.egress.media_fetcher import may_connect
from sparewatt.protocol.api.validators import (
    HEARTBEATS_PATH,
    MESSAGES_PATH,
    HeartbeatReply,
    HeartbeatRequest,
    MatchProgress,
    MessageReply,
    progress_path,
)
from sparewatt.protocol.contracts.match_messages import (
    MatchMessage,
    SignedCommitList,
    SignedRevealList,
    encode_message,
)

CALL_S = 5.0
POLL_MS = 2_000
REPLY_BYTES_MAX = 8 * MIB
"""Lists of 32 validators with 128 commits each, and the bids."""
_CONNECTIONS_PER_HOST_MAX = 16

_T = TypeVar("_T")


class ValidatorCalls(Protocol):
    """What bidding and heartbeats need of validators. All raise NoAnswer."""

    async def send(self, url: str, message: MatchMessage) -> MessageReply: ...

    async def progress(self, url: str, order_id: str, attempt: int, *, have: int) -> MatchProgress: ...

    async def beat(self, url: str, request: HeartbeatRequest) -> HeartbeatReply: ...


class HttpValidatorCalls:
    """`gateway_is_local`: validators on this machine may be dialled."""

    def __init__(self, *, gateway_is_local: bool) -> None:
        rules = DialRules(allows_loopback=gateway_is_local, may_connect=may_connect)
        self._client = StrangerClient(rules, per_host_max=_CONNECTIONS_PER_HOST_MAX)

    async def close(self) -> None:
        await self._client.close()

    async def send(self, url: str, message: MatchMessage) -> MessageReply:
        return await self._post(MessageReply, url, MESSAGES_PATH, encode_message(message))

    async def progress(self, url: str, order_id: str, attempt: int, *, have: int) -> MatchProgress:
        path = f"{progress_path(order_id, attempt)}?have={have}&wait_ms={POLL_MS}"
        within_s = CALL_S + POLL_MS / 1e3
        return _decoded(MatchProgress, await self._client.get(url, path, within_s=within_s, bytes_max=REPLY_BYTES_MAX))

    async def beat(self, url: str, request: HeartbeatRequest) -> HeartbeatReply:
        return await self._post(HeartbeatReply, url, HEARTBEATS_PATH, msgspec.json.encode(request))

    async def _post(self, kind: type[_T], url: str, path: str, body: bytes) -> _T:
        reply = await self._client.post(url, path, body, within_s=CALL_S, bytes_max=REPLY_BYTES_MAX)
        return _decoded(kind, reply)


def _decoded(kind: type[_T], reply: bytes) -> _T:
    """Raises NoAnswer."""
    try:
        return msgspec.json.decode(reply, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise NoAnswer("its answer makes no sense") from None


def lists_in(progress: MatchProgress) -> list[dict[str, Any]]:
    """As messages. Commit lists before reveal lists: the second are judged by the first."""
    commit_lists = [{**document, "type": SignedCommitList.tag} for document in progress.commit_lists]
    return commit_lists + [{**document, "type": SignedRevealList.tag} for document in progress.reveal_lists]
