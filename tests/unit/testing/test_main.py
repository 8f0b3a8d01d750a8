"""The engine as a process: how it says it is ready, and how it ends."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from click.testing import CliRunner

from sparewatt.testing.__main__ import main
from tests.unit.testing.client import CEILING_S, MODEL, Client, chat

PATH = "/v1/chat/completions"


@asynccontextmanager
async def engine_process(*flags: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, Client]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sparewatt.testing", "--model", MODEL, *flags, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(CEILING_S):
            word, base_url = (await process.stdout.readline()).decode().split()
        assert word == "ready"
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=CEILING_S)) as session:
            yield process, Client(base_url, session)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_well_even_in_the_middle_of_a_stall(name: signal.Signals) -> None:
    async with engine_process() as (process, engine):
        await engine.fault(kind="stall_after_tokens", after_tokens=1)
        async with engine.open(PATH, messages=chat("x")) as response:
            assert await response.content.readline()
            process.send_signal(name)
            assert await asyncio.wait_for(process.wait(), CEILING_S) == 0


async def test_the_port_file_has_the_port_and_no_draft_is_left(tmp_path: Path) -> None:
    async with engine_process("--port-file", str(tmp_path / "port")) as (_, engine):
        assert _contents(tmp_path) == {"port": engine.base_url.removeprefix("http://127.0.0.1:")}


def _contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.mark.parametrize("after_tokens", [0, 2])
async def test_an_exit_fault_ends_the_process_with_1(after_tokens: int) -> None:
    async with engine_process() as (process, engine):
        await engine.fault(kind="exit", after_tokens=after_tokens)
        with pytest.raises(aiohttp.ClientError):
            await engine.stream(PATH, messages=chat("x"))
        assert await asyncio.wait_for(process.wait(), CEILING_S) == 1


async def test_flags_reach_the_engine() -> None:
    async with engine_process("--answer-tokens", "4", "--slots", "2", "--n-ctx", "99") as (_, engine):
        reply = await engine.post(PATH, messages=chat("x"))
        props = await engine.get("/props")
        assert reply["usage"]["completion_tokens"] == 4
        assert (props["total_slots"], props["default_generation_settings"]["n_ctx"]) == (2, 99)


async def test_the_environment_sets_what_flags_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPAREWATT_ENGINE_ANSWER_TOKENS", "3")
    async with engine_process() as (_, engine):
        assert (await engine.post(PATH, messages=chat("x")))["usage"]["completion_tokens"] == 3


async def test_an_engine_that_batches_as_sglang_tells_its_limits() -> None:
    flags = ("--engine-kind=batching", "--speaks=sglang", "--max-num-seqs=5", "--kv-tokens=20000", "--chunk-tokens=512")
    async with engine_process(*flags) as (_, engine):
        info = await engine.get("/server_info")
        reply = await engine.post(PATH, messages=chat("[answer 3] x"))

    assert info["internal_states"][0]["effective_max_running_requests_per_dp"] == 5
    assert (info["max_total_num_tokens"], info["chunked_prefill_size"]) == (20_000, 512)
    assert reply["usage"]["completion_tokens"] == 3


def test_a_cache_too_small_for_one_context_is_refused_with_what_to_do() -> None:
    small = ["--engine-kind=batching", "--kv-tokens=1000"]

    refused = CliRunner().invoke(main, small)

    assert refused.exit_code == 2
    assert "--kv-tokens" in refused.output
    assert "--n-ctx" in refused.output
