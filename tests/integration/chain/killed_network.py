"""A network of real processes whose `sparewatt chain run` is killed (SIGKILL) after any of its writes.

A real gateway is asked over HTTP for each way that money takes; the chain is anvil, the books are in Postgres. After
every way `ledger audit` must agree, and what came in must be what is there and what was paid out. Chain time is the
test's: contracts have short times, and requests that wait for their next look are hurried.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import asyncpg
from msgspec.structs import replace

from sparewatt.accounts.custody import SECRET_BYTES
from sparewatt.chain.contracts import RECORD_FILE, DeploymentStep, shipped_plan
from sparewatt.chain.signer import OPERATOR_KEY
from sparewatt.core.ids import AccountId
from sparewatt.localnet.anvil import Anvil
from sparewatt.machine.data_dir import make_private_dir, write_private
from sparewatt.machine.spawn import free_port
from tests.integration.asking import Reply, ask
from tests.integration.chain.offering import Offering
from tests.integration.chain.setting import OPERATOR
from tests.integration.chain.settling import open_settling
from tests.integration.chain.stepped_chain import DEPTH
from tests.integration.chain.write_gate import WriteGate, gated
from tests.integration.networks import Network, environment_of
from tests.integration.operated import operated_gateway
from tests.integration.people import Person, sign_up
from tests.processes import start_process, tail, wait_until

BLOCK_S = 0.15
WAY_S = 90.0
START_S = 60.0
RECEIVER = "0x" + "5e" * 20
NANO_PER_MICRO = 1_000
UNBOND_S, EXIT_S = 130, 20
DOLLAR, DEPOSIT_USD = 10**9, 3


def short_plan() -> list[DeploymentStep]:
    """The shipped plan with times of seconds, so that chain time need not run far ahead of the clock."""
    last: dict[str, tuple[int, ...]] = {
        "stake_registry": (60, 1, UNBOND_S, 2),
        "dispute_book": (1, 5_000_000),
        "settlement": (0, EXIT_S, 1),
    }
    return [
        replace(step, args=(*step.args[: -len(last[step.create])], *last[step.create])) if step.create in last else step
        for step in shipped_plan()
    ]


@dataclass(slots=True)
class ChainProcess:
    """`sparewatt chain run`, with the gate in its way to the database and to the chain's node."""

    argv: list[str]
    env: dict[str, str]
    ready_file: Path
    log: Path
    gate: WriteGate
    process: Popen[bytes] | None = None
    starts: int = 0

    def start(self) -> None:
        """From the main thread."""
        self.ready_file.unlink(missing_ok=True)
        self.process = start_process(self.argv, output=self.log, env=self.env)
        self.gate.pid, self.starts = self.process.pid, self.starts + 1
        wait_until(self._is_ready, "the chain's process is not ready", ceiling_s=START_S)

    def _is_ready(self) -> bool:
        assert not self.has_ended, f"the chain's process ended: {tail(self.log)}"
        return self.ready_file.exists()

    @property
    def has_ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(START_S)


@dataclass(slots=True)
class KilledNetwork:
    gateway: Network
    chain: ChainProcess
    anvil_url: str
    token: str
    dsn: str
    data: Path
    person: Person
    provider: str
    deposits: set[str] = field(default_factory=set)
    """Of this person: their references."""
    paid_out_before: int = 0
    """To earlier persons, in nano-USD."""

    @property
    def gate(self) -> WriteGate:
        return self.chain.gate

    # the chain and the database, past everybody

    def rpc(self, method: str, *params: object) -> Any:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        request = urllib.request.Request(  # noqa: S310 (loopback)
            self.anvil_url, data=body, headers={"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=START_S) as reply:  # noqa: S310
            return json.loads(reply.read()).get("result")

    def pass_time(self, seconds: int) -> None:
        self.rpc("evm_increaseTime", seconds)
        self.rpc("evm_mine")

    def hurry(self) -> None:
        """What waits for a later look is looked at now."""

        async def update() -> None:
            connection = await asyncpg.connect(self.dsn)
            await connection.execute("UPDATE chain_requests SET due_at = now() WHERE due_at > now()")
            await connection.close()

        asyncio.run(update())

    def paid_out(self) -> int:
        """In nano-USD."""
        data = "0x70a08231" + RECEIVER.removeprefix("0x").rjust(64, "0")
        return int(self.rpc("eth_call", {"to": self.token, "data": data}, "latest"), 16) * NANO_PER_MICRO

    # the gateway

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Each look costs a request or two."""

        def look() -> bool:
            time.sleep(BLOCK_S)
            return holds()

        wait_until(look, what, ceiling_s=WAY_S)

    def ask(self, method: str, path: str, body: object = None) -> Reply:
        """Again by the same id for as long as the answer is that the chain is slow."""
        deadline_s = time.monotonic() + WAY_S
        while True:
            reply = ask(self.gateway, method, path, body, key=self.person.key)
            if reply.status != 503:
                assert reply.status in {200, 201, 202}, (path, reply.body)
                return reply
            assert time.monotonic() < deadline_s, (path, reply.body)

    def credits(self) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("GET", "/v1/credits").json()["data"]
        return found

    def on_chain(self, what: str) -> int:
        """Of the account, in nano-USD, by final events."""
        found: int = self.credits()["chain"][f"{what}_nano"]
        return found

    def change_person(self, email: str) -> None:
        """An account may place so many orders in an hour. The provider stays the first one's."""
        self.person, self.deposits = sign_up(self.gateway, email), set()
        self.paid_out_before = self.paid_out()

    # one way of money, with a kill in it

    def take(self, way: Way, reference: str, *, kill_at: int | None, reorg: int = 0) -> str | None:
        """Returns after which write the process was killed; None if the way had fewer."""
        self.gate.arm(kill_at)
        with ThreadPoolExecutor(1) as pool:
            taking = pool.submit(way, self, reference)
            while not taking.done():
                self.rpc("evm_mine")
                self._restart_if_killed(reorg)
                time.sleep(BLOCK_S)
            taking.result()
        killed_after = self.gate.killed_after
        self._restart_if_killed(reorg)
        self.gate.arm(None)
        return killed_after

    def _restart_if_killed(self, reorg: int) -> None:
        if not self.chain.has_ended:
            return
        assert self.gate.killed_after is not None, f"the chain's process ended by itself: {tail(self.chain.log)}"
        if reorg:
            self.rpc("anvil_reorg", reorg, [])
        self.chain.start()

    # what must hold

    def check(self) -> None:
        """By `ledger audit`; and what came in is there, or was paid out, once all that was sent is final."""
        report: dict[str, Any] = {}

        def is_in_order() -> bool:
            self.rpc("evm_mine")
            report.update(ask(self.gateway, "GET", "/v1/ledger/audit").json(), **self._sums())
            agrees = report["in_order"] and report["chain"] is not None and report["chain"]["in_order"]
            return bool(agrees and report["there"] + report["paid_out"] == report["came_in"])

        try:
            self.until(is_in_order, "the books do not agree with the chain")
        except AssertionError as error:
            error.add_note(json.dumps(report))
            raise

    def _sums(self) -> dict[str, int]:
        """In nano-USD."""
        balance = self.credits()
        on_chain = sum(balance["chain"][f"{each}_nano"] for each in ("escrow", "bonds", "owed", "wallet"))
        came_in = balance["granted_nano"] + len(self.deposits) * DEPOSIT_USD * DOLLAR
        paid_out = self.paid_out() - self.paid_out_before
        return {"there": balance["balance_nano"] + on_chain, "paid_out": paid_out, "came_in": came_in}

    def rebuild_index(self) -> None:
        argv = [sys.executable, "-m", "sparewatt", "chain", "sync", "--rebuild", "--json", f"--data={self.data}"]
        env = {**self.chain.env, "DATABASE_URL": self.dsn, "CHAIN_URL": self.anvil_url}
        process = start_process(argv, output=self.data / "sync.log", env=env)
        assert process.wait(START_S) == 0, tail(self.data / "sync.log")


Way: TypeAlias = Callable[[KilledNetwork, str], object]


@contextmanager
def killed_network(folder: Path, binary: Path, dsn: str) -> Iterator[KilledNetwork]:
    folder.mkdir(parents=True, exist_ok=True)
    data, secret = folder / "chain", "00" * SECRET_BYTES
    with asyncio.Runner() as runner, TemporaryDirectory(prefix="sw") as sockets:
        anvil = Anvil(data, binary=binary, port=free_port(), log_path=folder / "anvil.log")
        runner.run(anvil.start())
        env = environment_of(folder, {"DATABASE_URL": dsn, "CHAIN_URL": anvil.url, "SPAREWATT_SECRET": secret})
        flags = ("--development", "--no-metrics", "--signup=open")
        try:
            with operated_gateway(folder, *flags, env=env) as gateway, gated(dsn, anvil.url, Path(sockets)) as gate:
                person = sign_up(gateway, "ann@example.org")
                provider = runner.run(_prepare(anvil.url, dsn, data, AccountId(person.account_id)))
                chain_env = {**env, "DATABASE_URL": gate.dsn, "CHAIN_URL": gate.chain_url}
                chain = ChainProcess(_argv(data), chain_env, data / "ready", folder / "chain.log", gate.gate)
                token = json.loads((data / RECORD_FILE).read_bytes())["contracts"]["token"]["address"]
                chain.start()
                try:
                    yield KilledNetwork(gateway, chain, anvil.url, token, dsn, data, person, provider)
                finally:
                    chain.end()
        finally:
            runner.run(anvil.stop())


def _argv(data: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "sparewatt", "chain", "run", "--mine", "--test-money", "--senders=2"),
        *(f"--depth={DEPTH}", "--poll-s=0.05", f"--data={data}", f"--ready-file={data / 'ready'}"),
    ]


async def _prepare(url: str, dsn: str, data: Path, owner: AccountId) -> str:
    """Contracts, a table of providers, and a provider of the owner's; its address."""
    make_private_dir(data)
    write_private(data / OPERATOR_KEY, OPERATOR.secret_hex().encode())
    async with open_settling(url, dsn, data, test_money=True, plan=short_plan()) as settling:
        await settling.post_snapshot()
        offering = Offering(settling)
        node_id = await offering.join(owner, 1)
        return (await offering.done(offering.service.register(owner, node_id))).provider.row.address
