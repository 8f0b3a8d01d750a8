"""Connections to each process of a gateway that has several on one port: which one is which, the kernel tells."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.integration.asking import Reply, connection_to
from tests.integration.networks import Network
from tests.processes import commands_of

TRIES = 100


class NoWayIn(AssertionError):
    """Some process takes no connections."""


@dataclass(slots=True)
class Door:
    """A connection, and the process at its other end."""

    network: Network
    connection: http.client.HTTPConnection
    pid: int

    def ask(
        self, method: str, path: str, body: object = None, *, key: str | None = None, name: str | None = None
    ) -> Reply:
        """One request and its whole reply. `name`: its Idempotency-Key."""
        headers = {"authorization": f"Bearer {self.network.api_key if key is None else key}"}
        headers |= {"idempotency-key": name} if name else {}
        data = json.dumps(body).encode() if body is not None else None
        self.connection.request(method, path, body=data, headers=headers)
        reply = self.connection.getresponse()
        return Reply(reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read())


def processes_of(network: Network) -> set[int]:
    return {pid for pid, command in commands_of(network.descendants()).items() if "gateway process" in command}


@contextmanager
def doors_to(network: Network, *, each: int = 1) -> Iterator[list[Door]]:
    """So many connections to each process, those of one after those of another. Raises NoWayIn."""
    found: dict[int, list[Door]] = {pid: [] for pid in processes_of(network)}
    opened = []
    try:
        for _ in range(TRIES):
            held = connection_to(network)
            opened.append(held)
            connection = held.__enter__()
            connection.request("GET", "/readyz")
            connection.getresponse().read()
            pid = _other_end(connection, set(found))
            if pid is not None and len(found[pid]) < each:
                found[pid].append(Door(network, connection, pid))
            if found and all(len(doors) == each for doors in found.values()):
                break
        else:
            raise NoWayIn(f"of {TRIES} connections too few led to some process")
        yield [door for doors in found.values() for door in doors]
    finally:
        for held in opened:
            held.__exit__(None, None, None)


def _other_end(connection: http.client.HTTPConnection, pids: set[int]) -> int | None:
    """Which of these processes accepted it."""
    port = connection.sock.getsockname()[1]
    inodes = _inodes_of_peers(port)
    for pid in pids:
        with suppress(OSError):
            for file in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    if str(file.readlink()) in inodes:
                        return pid
    return None


def _inodes_of_peers(port: int) -> set[str]:
    """The sockets whose other end has this port."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {f"socket:[{line[9]}]" for line in lines if int(line[2].rpartition(":")[2], 16) == port}
