"""The chain of `up`, brought up beside everything else: nothing waits for it, and nothing ends because of it.

With CHAIN_URL it is somebody else's chain, and only our process that follows it is started.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sparewatt.core.clock import Clock
from sparewatt.core.errors import StartupError
from sparewatt.core.rng import Rng
from sparewatt.localnet.anvil import Anvil
from sparewatt.localnet.anvil_binary import find_anvil
from sparewatt.localnet.setup_runner import SetupRunner
from sparewatt.machine.backoff import Backoff, sleep
from sparewatt.machine.children import ChildSpec, Supervisor
from sparewatt.machine.data_dir import make_private_dir
from sparewatt.machine.spawn import free_port

Notify = Callable[[str], None]
READY_S = 120.0
"""From a started chain to one that is deployed to and followed: a second or two, more on a busy small machine."""

LOCAL_DEPTH = 2
STOP_S = 5.0


@dataclass(frozen=True, slots=True)
class ChainPlan:
    """Decided before the gateway starts, since it is told the address."""

    url: str
    port: int | None
    """Of our own chain; None for somebody else's."""


@dataclass(frozen=True, slots=True)
class DeployedChain:
    chain_url: str
    contracts: dict[str, str] = field(default_factory=dict)


def plan_chain(*, chain_url: str | None, no_chain: bool) -> ChainPlan | None:
    if no_chain:
        return None
    if chain_url is not None:
        return ChainPlan(chain_url, None)
    port = free_port()
    return ChainPlan(f"http://127.0.0.1:{port}", port)


@asynccontextmanager
async def chain_in_background(
    plan: ChainPlan | None,
    data: Path,
    dsn: str,
    children: Supervisor,
    *,
    setup: str | None = None,
    setups: SetupRunner,
    clock: Clock,
    rng: Rng,
    tell: Notify,
) -> AsyncIterator[asyncio.Task[DeployedChain | None]]:
    """The start of the chain as a task that others need not wait for; at the end the chain is stopped.

    `setup` is a command that installs its packages.
    """
    async with AsyncExitStack() as stack:
        keeper = _LocalChain(data, dsn, children, setup=setup, setups=setups, clock=clock, rng=rng, tell=tell)
        stack.push_async_callback(keeper.stop)
        task = asyncio.create_task(keeper.bring_up(plan), name="bring up the chain")
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.wait([task])


def _is_web3_installed() -> bool:
    importlib.invalidate_caches()
    return importlib.util.find_spec("web3") is not None


class _LocalChain:
    def __init__(
        self,
        data: Path,
        dsn: str,
        children: Supervisor,
        *,
        setup: str | None,
        setups: SetupRunner,
        clock: Clock,
        rng: Rng,
        tell: Notify,
    ) -> None:
        self._setup = setup
        self._setups = setups
        self._folder = data / "chain"
        self._secret_file = data / "gateway" / "secret"
        self._logs = data / "logs"
        self._dsn = dsn
        self._children = children
        self._clock = clock
        self._rng = rng
        self._tell = tell
        self._anvil: Anvil | None = None
        self._restarting: asyncio.Task[None] | None = None

    async def bring_up(self, plan: ChainPlan | None) -> DeployedChain | None:
        """None, and a line for the user, when there is no chain to be had."""
        if plan is None:
            return None
        try:
            await self._ensure_packages()
            make_private_dir(self._folder)
            if plan.port is not None:
                await self._start_anvil(plan.port)
            await self._children.start(self._child(plan))
            contracts = await asyncio.to_thread(self._contracts)
        except StartupError as error:
            self._tell(f"No chain: {error.message}\nAnswers work without it; leases and payouts do not.")
            return None
        self._tell(f"The chain is up at {plan.url}.")
        return DeployedChain(plan.url, contracts)

    async def stop(self) -> None:
        if self._restarting is not None:
            self._restarting.cancel()
            await asyncio.wait([self._restarting])
        if self._anvil is not None:
            await self._anvil.stop()

    async def _ensure_packages(self) -> None:
        """Run the command that installs them, if there is one; it does nothing when they are there."""
        if self._setup is not None:
            if not _is_web3_installed():
                self._tell("Installing what the chain needs (about 90 MB, once) …")
            log_path = self._logs / "chain-setup.log"
            await self._setups.run(self._setup, what="the chain's packages", log_path=log_path)
        if not _is_web3_installed():
            raise StartupError("The chain's packages are not installed: pip install 'sparewatt[chain]'.")

    async def _start_anvil(self, port: int) -> None:
        binary = await find_anvil(tell=self._tell)
        anvil = Anvil(self._folder, binary=binary, port=port, log_path=self._logs / "anvil.log")
        self._anvil = anvil
        await anvil.start()
        self._restarting = asyncio.create_task(self._restart_on_exit(anvil), name="keep the chain")

    async def _restart_on_exit(self, anvil: Anvil) -> None:
        backoff = Backoff(self._rng)
        while True:
            started_s = self._clock.now_s()
            status = await anvil.wait()
            delay_s = backoff.next_delay_s(uptime_s=self._clock.now_s() - started_s)
            self._tell(f"The chain ended with status {status}; starting it again in {delay_s:.1f} s.")
            await sleep(delay_s, clock=self._clock)
            try:
                await anvil.start()
            except StartupError as error:
                self._tell(error.message)

    def _child(self, plan: ChainPlan) -> ChildSpec:
        ready_file = self._folder / "ready"
        ready_file.unlink(missing_ok=True)
        own = ("--deploy", "--mine", "--test-money", f"--depth={LOCAL_DEPTH}") if plan.port is not None else ()
        return ChildSpec(
            name="chain",
            argv=(
                *(sys.executable, "-m", "sparewatt", "chain", "run", "--yield-to-others", *own),
                f"--data={self._folder}",
                f"--secret-file={self._secret_file}",
                f"--ready-file={ready_file}",
            ),
            env={"DATABASE_URL": self._dsn, "CHAIN_URL": plan.url},
            log_path=self._logs / "chain.log",
            is_ready=lambda: asyncio.to_thread(ready_file.exists),
            ready_timeout_s=READY_S,
            drain_s=STOP_S,
            needs=frozenset(),
        )

    def _contracts(self) -> dict[str, str]:
        """As the chain's process noted them; this one does not load what it would take to read the chain itself."""
        try:
            record = json.loads((self._folder / "contracts.json").read_bytes())
            return {name: str(placed["address"]) for name, placed in record["contracts"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise StartupError(f"The record of contracts in {self._folder} cannot be read ({error}).") from None
