"""A prompt whose client left counts until the server is seen to be free, by its own word or by the time it needs."""

from __future__ import annotations

from typing import Any, cast

from sparewatt.link.node_end import IncomingJob
from sparewatt.node.backends.backend import BackendLoad, BackendTimeout, BackendUnreachable
from sparewatt.node.jobs.abandoned_requests import ABANDONED_S_MAX, POLL_S, POLLS_S, AbandonedRequests
from sparewatt.testing.clocks import ManualClock
from tests.unit.node.rig import ScriptedBackend
from tests.waiting import turns


class Server(ScriptedBackend):
    """Says what it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.says: BackendLoad | Exception | None = None
        self.asked = 0

    async def load(self) -> BackendLoad | None:
        self.asked += 1
        if isinstance(self.says, Exception):
            raise self.says
        return self.says


class Watch:
    def __init__(self, says: Any) -> None:
        self.server, self.clock, self.live = Server(), ManualClock(), 0
        self.server.says = says
        self.released: list[IncomingJob] = []
        self.abandoned = AbandonedRequests(
            self.server, self.clock, live=lambda: self.live, on_released=self.released.append
        )

    def add(self, name: str, *, left_to_read_s: float = 16.0) -> IncomingJob:
        job = cast(IncomingJob, name)
        self.abandoned.add(job, left_to_read_s=left_to_read_s)
        return job

    async def after(self, seconds: float) -> list[IncomingJob]:
        await turns()
        self.clock.advance(seconds)
        await turns()
        return self.released


async def test_it_counts_while_the_server_runs_more_than_the_live_requests() -> None:
    watch = Watch(BackendLoad(running=3))
    watch.live = 2
    job = watch.add("left")
    assert await watch.after(POLLS_S[0]) == []
    assert list(watch.abandoned.jobs) == [job]
    watch.server.says = BackendLoad(running=2)
    assert await watch.after(POLLS_S[1]) == [job]
    assert not watch.abandoned.jobs


async def test_a_request_that_waits_in_the_servers_queue_counts_too() -> None:
    watch = Watch(BackendLoad(running=0, queued=1))
    watch.add("left")
    assert await watch.after(POLLS_S[0]) == []


async def test_of_several_the_oldest_are_released_first() -> None:
    watch = Watch(BackendLoad(running=1))
    first, second = watch.add("first"), watch.add("second")
    assert await watch.after(POLLS_S[0]) == [first]
    assert list(watch.abandoned.jobs) == [second]


async def test_the_first_polls_are_quick_and_the_rest_leave_the_server_its_second() -> None:
    """llama.cpp looks for closed connections only after a second without a question."""
    watch = Watch(BackendLoad(running=1))
    watch.add("left")
    for wait_s, asked in (POLLS_S[0], 1), (POLLS_S[1], 2), (POLL_S / 2, 2), (POLL_S / 2, 3):
        await watch.after(wait_s)
        assert watch.server.asked == asked
    assert POLL_S > 1.0


async def test_a_server_that_reports_no_load_is_busy_for_as_long_as_its_prompt_takes() -> None:
    watch = Watch(None)
    job = watch.add("left", left_to_read_s=1.5)
    assert await watch.after(POLLS_S[0]) == await watch.after(POLLS_S[1]) == []
    assert await watch.after(POLL_S) == [job]


async def test_a_server_that_is_too_busy_to_answer_is_busy() -> None:
    watch = Watch(BackendTimeout("no answer"))
    watch.add("left", left_to_read_s=0.0)
    assert await watch.after(POLLS_S[0]) == []


async def test_a_server_that_is_gone_has_given_it_up_in_time() -> None:
    watch = Watch(BackendUnreachable("refused"))
    job = watch.add("left", left_to_read_s=0.1)
    assert await watch.after(POLLS_S[0]) == [job]


async def test_it_is_not_counted_for_ever() -> None:
    watch = Watch(BackendLoad(running=1))
    job = watch.add("left", left_to_read_s=1e9)
    assert await watch.after(ABANDONED_S_MAX) == [job]


async def test_nothing_is_asked_once_all_are_released_until_the_next() -> None:
    watch = Watch(BackendLoad(running=0))
    watch.add("left")
    await watch.after(POLLS_S[0])
    await watch.after(10.0)
    assert watch.server.asked == 1
    again = watch.add("again")
    await watch.after(POLLS_S[0])
    assert watch.server.asked == 2
    assert watch.released[-1] == again


async def test_closing_ends_the_watch() -> None:
    watch = Watch(BackendLoad(running=1))
    await watch.abandoned.close()
    watch.add("left")
    await turns()
    await watch.abandoned.close()
    await watch.after(10.0)
    assert watch.server.asked == 0
