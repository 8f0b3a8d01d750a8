"""Listening TCP sockets."""

from __future__ import annotations

import socket

from sparewatt.core.errors import StartupError
from sparewatt.core.limits import CLIENT_UNSENT_BYTES_MAX


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A bound and listening socket. Raises StartupError. `shared`: with other processes of this gateway."""
    return start_listening(bind(host, port, shared=shared))


def start_listening(bound: socket.socket) -> socket.socket:
    """Let a bound socket accept connections from now on."""
    bound.listen(1024)
    bound.setblocking(False)
    return bound


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A socket with an address that no other user's process can take while it is open. Raises StartupError.

    With `shared` (SO_REUSEPORT) the kernel gives each new connection to one of the sockets that listen there.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _expose_slow_readers(listener)
    if shared:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise StartupError(f"Cannot listen on {host}:{port} ({error.strerror}). Choose another --port.") from None
    return listener


def _expose_slow_readers(listener: socket.socket) -> None:
    """Bound what the kernel buffers for a client that does not read: then the stall shows here. Inherited on accept."""
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, CLIENT_UNSENT_BYTES_MAX)
