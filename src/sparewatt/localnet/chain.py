"""The chain of `up`: anvil and the process that deploys to it and follows it, started in the background.

The network neither waits for the chain nor ends if it fails. With CHAIN_URL an external chain is used, and only the
follower process is started.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from sparewatt.core.clock import Clock
from sparewatt.core.errors import StartupError
from sparewatt.core.rng import Rng
from sparewatt.localnet.anvil import SAVED_BLOCK_FILE, Anvil
from sparewatt.localnet.anvil_binary import find_anvil
from sparewatt.localnet.setup_commands import SetupRunner
from sparewatt.machine.backoff import Notify, in_background, restarting
from sparewatt.machine.children import ChildSpec, Supervisor
from sparewatt.machine.data_dir import make_private_dir
from sparewatt.machine.spawn import free_port

READY_S = 120.0
"""From a started chain to deployed contracts and a running follower: a second or two, more on a busy machine."""
LOCAL_DEPTH = 2
LOCAL_SENDERS = 2
STOP_S = 5.0
STARTED_OVER = b"started over\n"
"""What the chain's process writes into its ready file when it replaced contracts of another release."""


@dataclass(frozen=True, slots=True)
class ChainPlan:
    """Decided before the gateway starts, which needs the address."""

    url: str
    port: int | None
    """Of the local chain; None for an external one."""


@dataclass(frozen=True, slots=True)
class DeployedChain:
    chain_url: str
    contracts: dict[str, str]


def plan_chain(*, chain_url: str | None, no_chain: bool) -> ChainPlan | None:
    if no_chain:
        return None
    if chain_url is not None:
        return ChainPlan(chain_url, None)
    port = free_port()
    return ChainPlan(f"http://127.0.0.1:{port}", port)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalChain:
    plan: ChainPlan | None
    data: Path
    dsn: str
    children: Supervisor
    setup: str | None
    """A command that installs the packages."""
    setups: SetupRunner
    clock: Clock
    rng: Rng
    notify: Notify

    @property
    def folder(self) -> Path:
        return self.data / "chain"

    @property
    def _ready_file(self) -> Path:
        return self.folder / "ready"

    @asynccontextmanager
    async def in_background(self) -> AsyncIterator[asyncio.Task[DeployedChain | None]]:
        """The start of the chain as a task; when the block ends, anvil is stopped."""
        async with AsyncExitStack() as stack, in_background(self._start(stack)) as starting:
            yield starting

    async def _start(self, stack: AsyncExitStack) -> DeployedChain | None:
        """None, after a line for the user, if the chain cannot be started. `stack` stops anvil."""
        if self.plan is None:
            self.notify("No chain (--no-chain): answers and credits work; leases, and payouts on a chain, are off.")
            return None
        try:
            await self._ensure_packages()
            make_private_dir(self.folder)
            if self.plan.port is not None:
                await self._start_anvil(self.plan.port, stack)
            await self.children.start(self._follower(self.plan))
            contracts = await asyncio.to_thread(self._read_contracts)
            is_new = await asyncio.to_thread(self._ready_file.read_bytes) == STARTED_OVER
        except StartupError as error:
            self.notify(f"No chain: {error.message}\nAnswers work without it; leases and payouts do not.")
            return None
        if is_new:
            self.notify("The chain was started over: its contracts were of another release. Credits are kept.")
        self.notify(f"The chain is up at {self.plan.url}.")
        return DeployedChain(self.plan.url, contracts)

    async def _ensure_packages(self) -> None:
        """Run the setup command, if there is one; it does nothing if the packages are installed."""
        if self.setup is not None:
            if not _is_web3_installed():
                self.notify("Installing what the chain needs (about 90 MB, once) …")
            log_path = self.data / "logs" / "chain-setup.log"
            await self.setups.run(self.setup, what="the chain's packages", log_path=log_path)
        if not _is_web3_installed():
            raise StartupError("The chain's packages are not installed: pip install 'sparewatt[chain]'.")

    async def _start_anvil(self, port: int, stack: AsyncExitStack) -> None:
        binary = await find_anvil(notify=self.notify)
        anvil = Anvil(self.folder, binary=binary, port=port, log_path=self.data / "logs" / "anvil.log")
        stack.push_async_callback(anvil.stop)  # before the start, which may be cancelled half-way
        await anvil.start()
        await stack.enter_async_context(
            restarting(anvil, name="The chain", clock=self.clock, rng=self.rng, notify=self.notify)
        )

    def _follower(self, plan: ChainPlan) -> ChildSpec:
        ready_file = self._ready_file
        ready_file.unlink(missing_ok=True)
        local = (
            *("--deploy", "--mine", "--test-money", f"--depth={LOCAL_DEPTH}", f"--senders={LOCAL_SENDERS}"),
            f"--saved-block-file={self.folder / SAVED_BLOCK_FILE}",
        )
        return ChildSpec(
            name="chain",
            argv=(
                *(sys.executable, "-m", "sparewatt", "chain", "run", "--yield-to-others"),
                *(local if plan.port is not None else ()),
                f"--data={self.folder}",
                f"--secret-file={self.data / 'gateway' / 'secret'}",
                f"--ready-file={ready_file}",
            ),
            env={"DATABASE_URL": self.dsn, "CHAIN_URL": plan.url},
            log_path=self.data / "logs" / "chain.log",
            is_ready=lambda: asyncio.to_thread(ready_file.exists),
            ready_timeout_s=READY_S,
            drain_s=STOP_S,
            needs=frozenset(),
        )

    def _read_contracts(self) -> dict[str, str]:
        """From the follower's record: this process does not load web3."""
        try:
            record = json.loads((self.folder / "contracts.json").read_bytes())
            return {name: str(contract["address"]) for name, contract in record["contracts"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise StartupError(f"The record of contracts in {self.folder} cannot be read ({error}).") from None


def _is_web3_installed() -> bool:
    importlib.invalidate_caches()
    return importlib.util.find_spec("web3") is not None
