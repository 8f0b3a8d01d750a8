"""What every container runtime does: the same tests for the engine's and for the one in memory."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from sparewatt.node.leases.runtime import probe_image
from sparewatt.node.leases.runtime.model import (
    ContainerMissing,
    ContainerState,
    ImageUnavailable,
    LeaseLabel,
    PortUnreachable,
    RestartRule,
    StartRefused,
)
from tests.contract.runtime.conftest import RuntimeRig
from tests.waiting import CEILING_S

LONG = ("wait", "600000")
NOBODY = LeaseLabel("0x" + "9" * 64, 1, 1, "0x" + "9" * 40)


async def test_a_started_container_runs_and_is_known_by_its_label(rig: RuntimeRig) -> None:
    plan = rig.plan(*LONG)
    started = await rig.runtime.start(plan)
    assert (started.state, started.label, started.restarts) == (ContainerState.RUNNING, plan.label, 0)
    assert started.address is not None
    assert started.started_unix_s is not None
    assert [each.label for each in await rig.runtime.containers() if each.label == plan.label] == [plan.label]


async def test_a_container_tells_what_it_was_made_of_also_to_an_agent_that_starts_anew(rig: RuntimeRig) -> None:
    made = await rig.start(*LONG, content="0xab")
    plain = await rig.start(*LONG)
    again = rig.anew()
    seen = [await again.container(each.label) for each in (made, plain)]
    assert [each and each.content for each in seen] == ["0xab", ""]
    await again.close()


async def test_a_second_start_adopts_what_runs_also_by_an_agent_that_starts_anew(rig: RuntimeRig) -> None:
    plan = rig.plan(*LONG)
    first = await rig.runtime.start(plan)
    assert await rig.runtime.start(plan) == first
    anew = rig.anew()
    assert plan.label in [each.label for each in await anew.containers()]
    assert await anew.start(replace(plan, label=replace(plan.label, attempt=2))) == first
    await anew.close()


async def test_an_adopted_container_runs_on_and_is_started_again_when_its_program_ends(rig: RuntimeRig) -> None:
    plan = rig.plan("wait", "300", "exit", "3", restart=RestartRule.ON_FAILURE)
    first = await rig.runtime.start(plan)
    anew = rig.anew()
    await anew.adopt(plan.label, restart=plan.restart, disk_mib=plan.disk_mib)
    await anew.adopt(plan.label, restart=plan.restart, disk_mib=plan.disk_mib)
    tending = asyncio.create_task(anew.run())
    try:
        async with asyncio.timeout(CEILING_S):
            while not (seen := await anew.container(plan.label)) or not seen.restarts:  # noqa: ASYNC110 (a ceiling)
                await asyncio.sleep(0.05)
    finally:
        tending.cancel()
        await asyncio.gather(tending, return_exceptions=True)
        await anew.close()
    assert seen.container_id == first.container_id


async def test_what_has_ended_for_good_is_not_started_by_adopting_it(rig: RuntimeRig) -> None:
    plan = rig.plan("exit", "3", restart=RestartRule.NEVER)
    await rig.runtime.start(plan)
    await rig.until(plan.label, lambda seen: seen.state is ContainerState.EXITED)
    anew = rig.anew()
    await anew.adopt(plan.label, restart=plan.restart, disk_mib=plan.disk_mib)
    seen = await anew.container(plan.label)
    assert seen is not None
    assert (seen.state, seen.exit_code, seen.restarts) == (ContainerState.EXITED, 3, 0)
    with pytest.raises(ContainerMissing):
        await anew.adopt(NOBODY, restart=plan.restart, disk_mib=1)
    await anew.close()


async def test_the_next_term_of_a_lease_is_another_container(rig: RuntimeRig) -> None:
    plan = rig.plan(*LONG)
    later = replace(plan, label=replace(plan.label, term=2))
    rig.labels.append(later.label)
    first, second = await rig.runtime.start(plan), await rig.runtime.start(later)
    assert first.container_id != second.container_id
    await rig.runtime.remove(plan.label)
    assert await rig.runtime.container(plan.label) is None
    assert await rig.runtime.container(later.label) is not None


async def test_a_stopped_container_stays_stopped_until_it_is_started(rig: RuntimeRig) -> None:
    plan = rig.plan("write", "/data/file", "1", *LONG)
    first = await rig.runtime.start(plan)
    await rig.runtime.stop(plan.label, grace_s=0)
    stopped = await rig.until(plan.label, lambda seen: seen.state is ContainerState.EXITED)
    assert stopped.exit_code not in (0, None)
    await rig.runtime.stop(plan.label, grace_s=0)
    again = await rig.runtime.start(plan)
    assert (again.state, again.container_id, again.restarts) == (ContainerState.RUNNING, first.container_id, 0)


async def test_removing_leaves_nothing_and_may_be_repeated(rig: RuntimeRig) -> None:
    plan = rig.plan(*LONG)
    await rig.runtime.start(plan)
    for _ in range(2):
        await rig.runtime.remove(plan.label)
        assert await rig.runtime.container(plan.label) is None
    await rig.runtime.stop(plan.label, grace_s=0)
    assert plan.label not in [each.label for each in await rig.runtime.containers()]


async def test_output_comes_by_stream_and_by_number_of_lines(rig: RuntimeRig) -> None:
    plan = rig.plan("say", "one", "complain", "oh", "say", "two", "exit", "0", restart=RestartRule.NEVER)
    await rig.runtime.start(plan)
    await rig.until(plan.label, lambda seen: seen.state is ContainerState.EXITED)
    assert await rig.output(plan.label) == ["one", "two"]
    assert await rig.output(plan.label, stream="stderr") == ["oh"]
    assert len([data async for _, data in rig.runtime.logs(plan.label, follow=False, tail=1)]) == 1


async def test_followed_output_goes_on_over_a_restart_and_ends_with_the_container(rig: RuntimeRig) -> None:
    plan = rig.plan("say", "begin", "exit", "1")
    await rig.runtime.start(plan)
    lines, runs = 0, 1
    async with asyncio.timeout(2 * CEILING_S):
        async for _, data in rig.runtime.logs(plan.label, follow=True, tail=100):
            lines += data.decode().split().count("begin")
            if (seen := await rig.runtime.container(plan.label)) is not None:
                runs = 1 + seen.restarts
                assert lines <= runs, "no line comes twice"
            if lines >= 3:
                await rig.runtime.remove(plan.label)
    assert lines >= 3


async def test_a_command_has_its_three_streams_and_its_exit_code(rig: RuntimeRig) -> None:
    plan = rig.plan(*LONG)
    await rig.runtime.start(plan)
    session = await rig.runtime.exec(
        plan.label, [probe_image.PROGRAM, "complain", "first", "echo", "exit", "7"], tty=False
    )
    await session.write(b"to be repeated\n")
    await session.write_eof()
    streams = {"stdout": b"", "stderr": b""}
    async with asyncio.timeout(CEILING_S):
        while (output := await session.read()) is not None:
            streams[output[0]] += output[1]
    assert streams == {"stdout": b"to be repeated\n", "stderr": b"first\n"}
    assert await session.exit_code() == 7
    await session.close()


async def test_a_command_on_a_terminal_knows_its_size(rig: RuntimeRig) -> None:
    plan = rig.plan(*LONG)
    await rig.runtime.start(plan)
    words = [probe_image.PROGRAM, "wait", "500", "size"]
    session = await rig.runtime.exec(plan.label, words, tty=True, size=(132, 43))
    text = b""
    async with asyncio.timeout(CEILING_S):
        while (output := await session.read()) is not None:
            text += output[1]
    assert b"size 132 43" in text
    await session.resize((80, 24))
    await session.close()


async def test_the_agent_connects_to_ports_of_a_container(rig: RuntimeRig) -> None:
    plan = rig.plan("listen", "7000", ports=(7000,))
    await rig.runtime.start(plan)
    await rig.printed(plan.label)
    reader, writer = await rig.runtime.connect(plan.label, 7000)
    assert await reader.read() == b"probe\n"
    writer.close()
    with pytest.raises(PortUnreachable):
        await rig.runtime.connect(plan.label, 7001)


async def test_a_paused_container_stands_still_and_goes_on(rig: RuntimeRig) -> None:
    plan = rig.plan(*LONG)
    started = await rig.runtime.start(plan)
    for _ in range(2):
        await rig.runtime.pause(plan.label)
        seen = await rig.runtime.container(plan.label)
        assert seen is not None
        assert seen.state is ContainerState.PAUSED
    assert (await rig.runtime.start(plan)).state is ContainerState.PAUSED, "adopted as it is"
    for _ in range(2):
        await rig.runtime.unpause(plan.label)
        seen = await rig.runtime.container(plan.label)
        assert seen is not None
        assert (seen.state, seen.started_unix_s) == (ContainerState.RUNNING, started.started_unix_s)
    await rig.runtime.pause(plan.label)
    await rig.runtime.stop(plan.label, grace_s=0)
    await rig.until(plan.label, lambda seen: seen.state is ContainerState.EXITED)


@pytest.mark.parametrize(("rule", "code"), [(RestartRule.NEVER, 3), (RestartRule.ON_FAILURE, 0)])
async def test_a_program_that_ended_for_good_keeps_its_exit_code(rig: RuntimeRig, rule: RestartRule, code: int) -> None:
    started = await rig.start("exit", str(code), restart=rule)
    ended = await rig.until(started.label, lambda seen: seen.state is ContainerState.EXITED)
    assert (ended.exit_code, ended.restarts) == (code, 0)
    assert ended.ended_unix_s is not None


async def test_a_program_that_ends_is_started_again_and_counted(rig: RuntimeRig) -> None:
    started = await rig.start("exit", "0")
    again = await rig.until(started.label, lambda seen: seen.restarts >= 2)
    assert again.container_id == started.container_id


async def test_a_program_that_fills_its_disk_is_paused_and_may_go_on_to_delete(rig: RuntimeRig) -> None:
    started = await rig.start("write", "/data/file", "12", *LONG, disk_mib=8)
    full = await rig.until(started.label, lambda seen: seen.is_disk_full)
    assert full.state is ContainerState.PAUSED
    assert await rig.runtime.disk_used_bytes(started.label) >= 8 << 20, "it may be seen before it has written all"
    await rig.runtime.unpause(started.label)
    free = await rig.until(started.label, lambda seen: seen.state is ContainerState.RUNNING)
    assert not free.is_disk_full


async def test_the_environment_reaches_the_program_and_no_log(rig: RuntimeRig) -> None:
    plan = rig.plan("env", "TOKEN", "exit", "0", env={"TOKEN": "a secret = 1"}, restart=RestartRule.NEVER)
    assert "secret" not in repr(plan)
    await rig.runtime.start(plan)
    await rig.until(plan.label, lambda seen: seen.state is ContainerState.EXITED)
    assert await rig.output(plan.label) == ["env TOKEN=a secret = 1"]


async def test_an_image_that_is_nowhere_is_told_and_leaves_nothing(rig: RuntimeRig) -> None:
    missing = "localhost/no-such-image:1"
    with pytest.raises(ImageUnavailable):
        await rig.runtime.pull(missing, lambda _line: None)
    plan = rig.plan(*LONG, image=missing)
    with pytest.raises(ImageUnavailable):
        await rig.runtime.start(plan)
    assert await rig.runtime.container(plan.label) is None


async def test_an_image_that_is_here_is_used_as_it_is(rig: RuntimeRig) -> None:
    assert await rig.runtime.pull(probe_image.image_tag(), lambda _line: None)


async def test_a_program_that_cannot_be_started_is_told_and_leaves_nothing(rig: RuntimeRig) -> None:
    plan = replace(rig.plan(), command=("/no/such/program",))
    with pytest.raises(StartRefused):
        await rig.runtime.start(plan)
    assert await rig.runtime.container(plan.label) is None


async def test_a_lease_without_a_container_is_told(rig: RuntimeRig) -> None:
    assert await rig.runtime.container(NOBODY) is None
    with pytest.raises(ContainerMissing):
        await rig.runtime.pause(NOBODY)
    with pytest.raises(ContainerMissing):
        await rig.runtime.connect(NOBODY, 80)
    with pytest.raises(ContainerMissing):
        await rig.runtime.exec(NOBODY, ["/probe"], tty=False)
    with pytest.raises(ContainerMissing):
        await rig.runtime.disk_used_bytes(NOBODY)
    with pytest.raises(ContainerMissing):
        async for _ in rig.runtime.logs(NOBODY, follow=False, tail=1):
            pass
