"""A local chain: `anvil` as our own child, on loopback only, kept on disk, gone when we are.

Its state is asked for and written in one step after every change, at most once a second, so a kill at any moment leaves
a whole file: the chain then has lost its last second at most, which to its users is a reorganisation. It makes a block
for every transaction by itself, and knows no account: whoever sends has a key of their own, and gas costs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import urllib.request
import zlib
from asyncio.subprocess import Process
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sparewatt.core.errors import StartupError
from sparewatt.localnet.anvil_state import loadable_state
from sparewatt.machine.data_dir import make_private_dir, write_private
from sparewatt.machine.logs import read_tail
from sparewatt.machine.spawn import spawn, stop_process

CHAIN_ID = 31337
READY_S = 30.0
SAVE_S = 1.0
POLL_S = 0.02
STOP_S = 5.0
RPC_S = 10.0
STATE_FILE = "state.json"


class Anvil:
    """One chain in one folder. The folder must not be used by two processes at once: lock the directory around it."""

    def __init__(self, folder: Path, *, binary: Path, port: int, log_path: Path) -> None:
        self._folder = folder
        self._binary = binary
        self._port = port
        self._log_path = log_path
        self._process: Process | None = None
        self._saver: asyncio.Task[None] | None = None
        self._saver_stopped = asyncio.Event()
        self._saved_block: str | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    async def start(self) -> None:
        """Start with the state on disk; StartupError with the end of its log when it does not come up."""
        make_private_dir(self._folder)
        env = {name: value for name, value in os.environ.items() if not name.startswith(("ANVIL_", "FOUNDRY_", "ETH_"))}
        argv, death = self._argv(), signal.SIGKILL
        self._process = await spawn(argv, env=env, log_path=self._log_path, death_signal=death)
        await self._wait_until_ready(self._process)
        self._saved_block = None
        await self.save()  # its first block is what tells this chain from others
        self._saver_stopped = asyncio.Event()
        self._saver = asyncio.create_task(self._keep_saving(self._saver_stopped), name="save chain")

    async def wait(self) -> int:
        """Until the process ends by itself."""
        if self._process is None:
            raise RuntimeError("it was not started")
        status = await self._process.wait()
        await self._stop_saving()
        return status

    async def stop(self) -> None:
        await self._stop_saving()
        if self._process is not None and self._process.returncode is None:
            await self.save()
            await stop_process(self._process, steps=((signal.SIGTERM, STOP_S),))
        self._process = None

    async def save(self) -> bool:
        """Write the state if there is a new block. False when the chain did not answer."""
        try:
            return await asyncio.to_thread(self._save)
        except (OSError, ValueError, EOFError, zlib.error):
            return False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.stop()

    def _argv(self) -> tuple[str, ...]:
        state = self._folder / STATE_FILE
        return (
            str(self._binary),
            *("--host", "127.0.0.1", "--port", str(self._port), "--no-cors", "--quiet"),
            *("--accounts", "0", "--chain-id", str(CHAIN_ID), "--hardfork", "prague"),
            *("--block-base-fee-per-gas", "0", "--gas-price", "0"),
            *(("--load-state", str(state)) if state.exists() else ()),
        )

    async def _wait_until_ready(self, process: Process) -> None:
        ready = False
        try:
            async with asyncio.timeout(READY_S):
                while process.returncode is None and not ready:
                    ready = await asyncio.to_thread(self._answers)
                    await asyncio.sleep(0 if ready else POLL_S)
        except TimeoutError:
            pass
        finally:
            if not ready:
                await stop_process(process, steps=())
        if not ready:
            raise StartupError(f"The local chain does not start. The end of its log:\n{read_tail(self._log_path)}")

    def _answers(self) -> bool:
        try:
            return bool(self._rpc("eth_chainId") == hex(CHAIN_ID))
        except (OSError, ValueError):
            return False

    async def _keep_saving(self, stopped: asyncio.Event) -> None:
        while not stopped.is_set():
            await self.save()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SAVE_S):
                    await stopped.wait()

    async def _stop_saving(self) -> None:
        """A write that has begun ends first, or it would come after what the next start reads."""
        if self._saver is not None:
            self._saver_stopped.set()
            await asyncio.wait([self._saver])
            self._saver = None

    def _save(self) -> bool:
        newest = self._header("latest")["hash"]
        if newest != self._saved_block:
            packed = bytes.fromhex(str(self._rpc("anvil_dumpState"))[2:])
            write_private(self._folder / STATE_FILE, loadable_state(packed, self._header))
            self._saved_block = newest
        return True

    def _header(self, number: str) -> Any:
        return self._rpc("eth_getBlockByNumber", number, False)

    def _rpc(self, method: str, *params: object) -> Any:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        request = urllib.request.Request(self.url, body, {"content-type": "application/json"})  # noqa: S310 (loopback)
        with urllib.request.urlopen(request, timeout=RPC_S) as reply:  # noqa: S310
            found = json.load(reply)
        if "result" not in found:
            raise ValueError(f"{method} gave no result")
        return found["result"]
