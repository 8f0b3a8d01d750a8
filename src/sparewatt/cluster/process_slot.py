"""Which of a gateway's processes this is, and the ports of the others."""

from __future__ import annotations

import msgspec

from sparewatt.core.rng import Rng

_SECRET_BYTES = 32


class ProcessSlot(msgspec.Struct, frozen=True):
    """The same in every process of one start, but for `number`."""

    number: int = 0
    link_ports: tuple[int, ...] = ()
    """Where each process accepts links; they stay the same when a process restarts."""
    peer_ports: tuple[int, ...] = ()
    """Where each answers the others, on loopback."""
    metrics_ports: tuple[int, ...] = ()
    """Where each exposes its metrics; empty if metrics are off."""
    secret: str = ""
    """The bearer token between processes."""
    prompt_secret: str = ""
    """Keys the digests of requests: the same request has the same digest in every process."""

    @property
    def count(self) -> int:
        return max(1, len(self.peer_ports))

    @property
    def others(self) -> tuple[int, ...]:
        return tuple(number for number in range(len(self.peer_ports)) if number != self.number)

    @property
    def link_port(self) -> int | None:
        return self.link_ports[self.number] if self.link_ports else None


ALONE = ProcessSlot()
"""A gateway that is one process."""


def new_slots(
    *, link_ports: tuple[int, ...], peer_ports: tuple[int, ...], metrics_ports: tuple[int, ...] = (), rng: Rng
) -> list[ProcessSlot]:
    secret, prompt_secret = rng.randbytes(_SECRET_BYTES).hex(), rng.randbytes(_SECRET_BYTES).hex()
    return [
        ProcessSlot(number, link_ports, peer_ports, metrics_ports, secret=secret, prompt_secret=prompt_secret)
        for number in range(len(peer_ports))
    ]
