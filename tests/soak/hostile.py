"""A gateway for hostile crowds: many slots, no money, limits out of the way; and what it takes of the machine."""

from __future__ import annotations

import os
import resource
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from sparewatt.machine.spawn import free_port
from tests.integration.asking import REPLY_S
from tests.integration.hostile.raw import wire_to
from tests.integration.hostile.target import Target
from tests.integration.networks import Network
from tests.integration.operated import bare_environment, is_serving, joining_node, operated_gateway
from tests.processes import descendants_of, wait_until
from tests.soak.cores import ALL, MEASURED, OTHERS, give_way, go_first, running_on
from tests.unit.telemetry.metrics.scraped import Scraped, read

SLOTS = 250
"""Of each node: as many jobs as one link carries, less a few."""

CALM = "calm"
"""The model, and the node, of who does no harm: theirs alone, so that what they wait for is the gateway."""

JOINED_S = 180.0
AT_ONCE = 8


@contextmanager
def roomy_network(folder: Path, *, nodes: int, decode_tps: float, is_split: bool = False) -> Iterator[Network]:
    """`is_split`: a node for who does no harm, and a core for the gateway."""
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
    port = free_port()
    with ExitStack() as stack:
        with running_on(MEASURED if is_split else ALL):
            gateway = stack.enter_context(operated_gateway(folder, f"--metrics-port={port}", env=env))
        of_gateway = descendants_of(os.getpid())
        with running_on(OTHERS if is_split else ALL):
            if is_split:
                calm = {**env, "SPAREWATT_ENGINE_MODELS": CALM}
                stack.enter_context(joining_node(gateway, folder, CALM, decode_tps=0, env=calm))
            before = descendants_of(os.getpid())
            if is_split:
                go_first(pid for pid, _ in before - of_gateway)  # it has its core: Linux would stop it for a while
            for name in names:
                stack.enter_context(joining_node(gateway, folder, name, decode_tps=decode_tps, env=env))
            if is_split:
                give_way(pid for pid, _ in descendants_of(os.getpid()) - before)
        everybody = [*names, CALM] if is_split else names
        wait_until(lambda: all(is_serving(gateway, name) for name in everybody), "not all serve", ceiling_s=JOINED_S)
        yield replace(gateway, ready={"metrics_url": f"http://127.0.0.1:{port}/metrics"})


def ask_often(target: Target, times: int, *, seconds_max: float) -> int:
    """Short questions, several at once: what is kept of the last so many fills up, and does not look like a leak.

    How many were answered in the time that there was.
    """
    until_s = time.monotonic() + seconds_max

    def ask_some(_: int) -> int:
        done = 0
        with wire_to(target.network, timeout_s=REPLY_S) as wire:
            while done < -(-times // AT_ONCE) and time.monotonic() < until_s:
                wire.send(target.chat("a short question", max_tokens=1))
                reply = wire.reply()
                assert reply is not None
                assert reply.status == 200, reply.body
                done += 1
        return done

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return sum(pool.map(ask_some, range(AT_ONCE)))


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


def scraped(network: Network) -> Scraped:
    """What the gateway says of itself."""
    with urllib.request.urlopen(network.ready["metrics_url"], timeout=20) as reply:  # noqa: S310 (loopback)
        return read(reply.read())


def tasks(network: Network) -> int:
    """Of its event loop."""
    return int(scraped(network).value("sparewatt_tasks"))


def kernel_socket_bytes() -> int:
    """What TCP holds of the kernel's memory, on the whole machine."""
    line = next(line for line in Path("/proc/net/sockstat").read_text().splitlines() if line.startswith("TCP:"))
    return int(line.split()[-1]) * resource.getpagesize()


def say(text: str) -> None:
    """Progress, for who watches."""
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stdout.flush()
