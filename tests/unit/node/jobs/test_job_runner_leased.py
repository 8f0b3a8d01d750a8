"""A node whose machine a lease has: it takes no jobs, and gives up those that it has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sparewatt.core.clock import SystemClock
from sparewatt.node.jobs.receipt_issuer import ReceiptIssuer
from sparewatt.node.leases.machine.node_inference import NodeInference
from tests.unit.node.jobs.test_job_runner import occupy, refreshed_rig
from tests.unit.node.leases.lease_world import NODE_KEY
from tests.unit.node.rig import MODEL, Rig
from tests.waiting import until

ORDER = "0x" + "1" * 64


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with refreshed_rig(tmp_path) as rig:
        yield rig


def inference_of(rig: Rig) -> NodeInference:
    return NodeInference(jobs=lambda: rig.jobs, inventory=lambda: rig.inventory, is_joined=lambda: True)


async def test_running_answers_are_broken_off_for_the_lease(rig: Rig) -> None:
    inference = inference_of(rig)
    await occupy(rig, 1, 2)
    inference.stop_taking(ORDER)
    assert rig.jobs.count() == 2, "for a moment"
    assert inference.break_off(ORDER) == 2
    for stream in (1, 2):
        failure = await rig.failed(stream)
        assert (failure.code, failure.lease) == ("leased", ORDER)
    assert await rig.jobs.wait_until_idle(5)


async def test_no_job_is_taken_until_the_lease_is_over(rig: Rig) -> None:
    inference = inference_of(rig)
    inference.stop_taking(ORDER)
    assert rig.jobs.load().draining
    assert not inference.is_serving()
    assert "lease" in (rig.jobs.load().paused or "")
    rig.send(1)
    assert (await rig.failed(1)).code == "refused"
    inference.take_again()
    assert rig.jobs.load().paused is None
    rig.send(2)
    await rig.ended(2)
    assert inference.is_serving()


async def test_what_was_delivered_is_told_with_its_price(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    async with refreshed_rig(tmp_path, hourly_usd="0.36", prompt_usd_per_mtok="1", completion_usd_per_mtok="2") as rig:
        rig.jobs.on_delivered = lambda *delivered: told.append(delivered)
        rig.jobs.receipts = ReceiptIssuer(tmp_path, NODE_KEY, clock=SystemClock())
        rig.send(1, job="m-1")
        await rig.ended(1)
        await until(lambda: told)
        assert told[0][0] == MODEL
        assert told[0][2] > 0
        assert inference_of(rig).prices_of(MODEL) == (10**9, 2 * 10**9)
        assert inference_of(rig).prices_of("another") is None
