"""Every raw request of the corpus gets what it deserves, on a connection of its own, and hides no other."""

from __future__ import annotations

import pytest

from tests.integration.hostile.cases import NOTHING, Case
from tests.integration.hostile.corpus import CASES
from tests.integration.hostile.raw import RawReply, Wire, wire_to
from tests.integration.hostile.target import Target

PROBE = b"GET /version HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\r\n"
LOUD = "Traceback (most recent call last)"


def first_of(replies: list[RawReply]) -> int:
    return next((reply.status for reply in replies if reply.status >= 200), NOTHING)


def is_probed(reply: RawReply) -> bool:
    return reply.status == 200 and b'"link_protocol"' in reply.body


def converse(wire: Wire, case: Case, raw: bytes) -> list[RawReply]:
    """All replies, up to the end of the connection. Behind the request a probe asks whether anybody still listens."""
    wire.send(raw)
    if case.ends_sending:
        wire.send_no_more()
    reply = wire.reply()
    if reply is None or reply.status not in case.statuses:
        return [reply] if reply is not None else []
    wire.send(PROBE)
    if case.then == "stays":
        return [reply, *wire.replies()]
    wire.send_no_more()
    return [reply, *(wire.replies() if case.then == "closes" else _rest(wire))]


def _rest(wire: Wire) -> list[RawReply]:
    """Of a connection that may be waiting for the rest of a body: it has until the timeout, which is short."""
    wire.socket.settimeout(0.2)
    try:
        return wire.replies()
    except TimeoutError:
        return []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_hostile_request_changes_nothing(target: Target, case: Case) -> None:
    smuggled_before = target.smuggled()
    with wire_to(target.network) as wire:
        replies = converse(wire, case, case.make(target))
    assert first_of(replies) in case.statuses, case.why
    assert all(reply.status < 500 or reply.status in {501, 505} for reply in replies), case.why
    if case.then == "stays":
        assert is_probed(replies[-1]), case.why
        assert len(replies) == 2
    elif case.then == "closes":
        assert not any(map(is_probed, replies))
    assert target.smuggled() == smuggled_before, case.why


def test_nothing_of_it_is_in_the_log(target: Target) -> None:
    log = (target.network.log_dir / "gateway.log").read_text()
    assert LOUD not in log
    assert target.key.decode() not in log
    assert target.smuggler.decode() not in log


def test_no_case_is_there_twice() -> None:
    names = [case.name for case in CASES]
    assert sorted(set(names)) == sorted(names)
