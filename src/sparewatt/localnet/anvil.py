"""The local chain: `anvil` as a child process on loopback, with its state saved to disk.

After new blocks the state is dumped and written atomically, and then, in a file of its own, the number of the newest
block that it holds. A kill at any moment loses the blocks above that number, which to the chain's users is a reorg: the
chain's process counts no such block as final (ADR 59). Anvil mines a block for every transaction, manages no accounts
(senders sign with their own keys), and gas is free.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import io
import json
import os
import signal
import urllib.request
import zlib
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sparewatt.core.errors import StartupError
from sparewatt.core.limits import MIB
from sparewatt.machine.data_dir import make_private_dir, write_private
from sparewatt.machine.spawn import read_tail, spawn, stop_process

CHAIN_ID = 31337
READY_S = 30.0
SAVE_QUIET_S = 0.5
"""Between two looks for new blocks while there are none."""
SAVE_BUSY_S = 0.1
"""While there are: what waits to be final waits for the write."""
SAVE_PAUSES = 4
"""Times the last write that the next one waits: of a chain that has grown large, a fifth of a core at most."""
POLL_S = 0.02
STOP_S = 5.0
RPC_S = 10.0
STATE_FILE = "state.json"
SAVED_BLOCK_FILE = "saved-block"
"""The number of the newest block that is in the state file, in decimal."""
CHAIN_STATE_BYTES_MAX = 512 * MIB
"""A local chain's whole state: about 150,000 transactions, enough for trials."""

HeaderLookup = Callable[[str], Mapping[str, Any] | None]
"""The header of the canonical block with this number (in hex)."""


class Anvil:
    """One chain in one folder. The caller locks the folder: two processes must not use it at once."""

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
        """Start with the state on disk. Raises StartupError with the end of the log."""
        make_private_dir(self._folder)
        if not (self._folder / STATE_FILE).exists():
            (self._folder / SAVED_BLOCK_FILE).unlink(missing_ok=True)  # of a chain that was removed
        env = {name: value for name, value in os.environ.items() if not name.startswith(("ANVIL_", "FOUNDRY_", "ETH_"))}
        self._process = await spawn(self._argv(), env=env, log_path=self._log_path, death_signal=signal.SIGKILL)
        await self._wait_until_ready(self._process)
        self._saved_block = None
        await self.save()  # the first block identifies the chain, so it must survive a kill
        self._saver_stopped = asyncio.Event()
        self._saver = asyncio.create_task(self._save_regularly(self._saver_stopped), name="save the chain's state")

    async def wait(self) -> int:
        """Wait until the process has ended, and return its exit status."""
        if self._process is None:
            raise RuntimeError("anvil was not started")
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
        """Write the state if there is a new block. False if the chain did not answer."""
        try:
            return await asyncio.to_thread(self._save)
        except (OSError, ValueError, EOFError, zlib.error):
            return False

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
                    ready = await asyncio.to_thread(self._is_answering)
                    await asyncio.sleep(0 if ready else POLL_S)
        except TimeoutError:
            pass
        finally:
            if not ready:
                await stop_process(process, steps=())
        if not ready:
            raise StartupError(f"The local chain does not start. The end of its log:\n{read_tail(self._log_path)}")

    def _is_answering(self) -> bool:
        try:
            return bool(self._rpc("eth_chainId") == hex(CHAIN_ID))
        except (OSError, ValueError):
            return False

    async def _save_regularly(self, stopped: asyncio.Event) -> None:
        now_s = asyncio.get_running_loop().time
        while not stopped.is_set():
            saved, began_s = self._saved_block, now_s()
            await self.save()
            pause_s = save_pause_s(is_new=self._saved_block != saved, took_s=now_s() - began_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await stopped.wait()

    async def _stop_saving(self) -> None:
        """Wait for a running write: it must not overwrite the state after the next start has read it."""
        if self._saver is not None:
            self._saver_stopped.set()
            await asyncio.wait([self._saver])
            self._saver = None

    def _save(self) -> bool:
        newest = self._header("latest")
        if newest["hash"] != self._saved_block:
            number = int(newest["number"], 16)
            packed = bytes.fromhex(str(self._rpc("anvil_dumpState"))[2:])
            write_private(self._folder / STATE_FILE, loadable_state(packed, self._header))
            write_private(self._folder / SAVED_BLOCK_FILE, b"%d\n" % number)  # last: it must never promise too much
            self._saved_block = newest["hash"]
        return True

    def _header(self, number: str) -> Any:
        return self._rpc("eth_getBlockByNumber", number, False)

    def _rpc(self, method: str, *params: object) -> Any:
        call = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        request = urllib.request.Request(self.url, call, {"content-type": "application/json"})  # noqa: S310 (loopback)
        with urllib.request.urlopen(request, timeout=RPC_S) as reply:  # noqa: S310
            body = json.load(reply)
        if "result" not in body:
            raise ValueError(f"{method} gave no result")
        return body["result"]


def save_pause_s(*, is_new: bool, took_s: float) -> float:
    """Until the next look for new blocks; `is_new`: this one found some, and wrote the state."""
    return max(SAVE_BUSY_S, SAVE_PAUSES * took_s) if is_new else SAVE_QUIET_S


def loadable_state(packed: bytes, header_of: HeaderLookup) -> bytes:
    """The state file for a dump of `anvil_dumpState`, with the canonical blocks only. Raises ValueError.

    Anvil adds a first block of its own when it loads a state, and its dump lists all blocks without saying which one is
    canonical; the next start might choose another one.
    """
    state = json.loads(_unpack(packed))
    if not isinstance(state, dict) or not isinstance(state.get("blocks"), list):
        raise ValueError("anvil_dumpState gave no state")  # noqa: TRY004 (a value that came over the wire)
    state["blocks"] = _canonical_blocks(state["blocks"], header_of)
    return json.dumps(state, separators=(",", ":")).encode()


def _unpack(packed: bytes) -> bytes:
    with gzip.open(io.BytesIO(packed)) as file:
        text = file.read(CHAIN_STATE_BYTES_MAX + 1)
    if len(text) > CHAIN_STATE_BYTES_MAX:
        raise ValueError(f"the chain's state is too large: over {CHAIN_STATE_BYTES_MAX} bytes")
    return text


def _canonical_blocks(blocks: list[dict[str, Any]], header_of: HeaderLookup) -> list[dict[str, Any]]:
    entries = Counter(block["header"]["number"] for block in blocks)
    canonical = {number: header_of(number) for number, count in entries.items() if count > 1}
    return [block for block in blocks if _is_canonical(block["header"], canonical)]


def _is_canonical(header: Mapping[str, Any], canonical: Mapping[str, Mapping[str, Any] | None]) -> bool:
    if header["number"] not in canonical:
        return True
    chosen = canonical[header["number"]]
    return chosen is not None and all(chosen.get(name, value) == value for name, value in header.items())
