"""A gateway for hostile crowds: many slots, no money, limits out of the way; what it takes of the machine, and how
quickly it answers others meanwhile."""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.integration.asking import REPLY_S
from tests.integration.hostile.raw import wire_to
from tests.integration.hostile.target import Target
from tests.integration.networks import Network
from tests.integration.operated import bare_environment, is_serving, joining_node, operated_gateway
from tests.processes import wait_until

SLOTS = 250
"""Of each node: as many jobs as one link carries, less a few."""

PAUSE_S = 0.02
"""Between two requests of the client whose waiting is measured."""

QUIET_S = 10.0
JOINED_S = 180.0
AT_ONCE = 8


@contextmanager
def roomy_network(folder: Path, *, nodes: int, decode_tps: float) -> Iterator[Network]:
    env = bare_environment(
        folder,
        SPAREWATT_GATEWAY_BILLING="false",
        SPAREWATT_GATEWAY_REQUESTS_PER_MIN="100000000",
        SPAREWATT_GATEWAY_ADDRESS_REQUESTS_PER_MIN="100000000",
        SPAREWATT_GATEWAY_TOKENS_PER_MIN="1000000000",
        SPAREWATT_GATEWAY_ADDRESS_TOKENS_PER_MIN="1000000000",
        SPAREWATT_ENGINE_SLOTS=str(SLOTS),
    )
    names = [f"n{number}" for number in range(nodes)]
    with operated_gateway(folder, env=env) as gateway, ExitStack() as stack:
        for name in names:
            stack.enter_context(joining_node(gateway, folder, name, decode_tps=decode_tps, env=env))
        wait_until(lambda: all(is_serving(gateway, name) for name in names), "not all serve", ceiling_s=JOINED_S)
        yield gateway


def ask_often(target: Target, times: int) -> None:
    """Short questions, several at once: what is kept of the last so many fills up, and does not look like a leak."""

    def ask_some(_: int) -> None:
        with wire_to(target.network, timeout_s=REPLY_S) as wire:
            for _ in range(times // AT_ONCE):
                wire.send(target.chat("a short question", max_tokens=1))
                reply = wire.reply()
                assert reply is not None
                assert reply.status == 200, reply.body

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(ask_some, range(AT_ONCE)))


def raise_open_files() -> int:
    """As many sockets as this machine lets one process have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most


def rss_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def open_files(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def kernel_socket_bytes() -> int:
    """What TCP holds of the kernel's memory, on the whole machine."""
    line = next(line for line in Path("/proc/net/sockstat").read_text().splitlines() if line.startswith("TCP:"))
    return int(line.split()[-1]) * resource.getpagesize()


def p99_ms(waits_s: Sequence[float]) -> float:
    return sorted(waits_s)[min(len(waits_s) - 1, int(len(waits_s) * 0.99))] * 1000


@dataclass(slots=True)
class Bystander:
    """An honest client that asks all the time, and knows how long it waited. `mark` begins a new count."""

    target: Target
    waits_s: dict[str, list[float]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    _phase: str = ""
    _stop: threading.Event = field(default_factory=threading.Event)

    def mark(self, phase: str) -> None:
        self.waits_s[phase] = []
        self._phase = phase

    def measured(self, phase: str) -> float:
        return p99_ms(self.waits_s[phase])

    def run(self) -> None:
        raw = self.target.chat("a short question")
        with wire_to(self.target.network, timeout_s=REPLY_S) as wire:
            while not self._stop.wait(PAUSE_S):
                phase, began_s = self._phase, time.monotonic()
                wire.send(raw)
                reply = wire.reply()
                if reply is None or reply.status != 200:
                    self.errors.append(f"{phase}: {reply.status if reply is not None else 'closed'}")
                    return
                self.waits_s[phase].append(time.monotonic() - began_s)

    def stop(self) -> None:
        self._stop.set()


@contextmanager
def bystander(target: Target) -> Iterator[Bystander]:
    """Asks from here on; the first phase is a quiet one."""
    found = Bystander(target)
    found.mark("warm-up")
    thread = threading.Thread(target=found.run, daemon=True)
    thread.start()
    try:
        wait_until(lambda: len(found.waits_s["warm-up"]) > 50, "nobody is served")
        yield found
    finally:
        found.stop()
        thread.join(REPLY_S)
