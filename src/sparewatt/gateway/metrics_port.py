"""Which port the metrics get, by the settings."""

from __future__ import annotations

import socket
from contextlib import suppress

from sparewatt.cluster.process_slot import ALONE, ProcessSlot
from sparewatt.core.errors import StartupError
from sparewatt.edge.server import listen
from sparewatt.gateway.settings import GatewaySettings
from sparewatt.telemetry.metrics.server import METRICS_PORT, refuse_public_host


def open_metrics_socket(settings: GatewaySettings, slot: ProcessSlot = ALONE) -> socket.socket | None:
    """None where they are off. Raises StartupError for a port that was asked for and cannot be had.

    Without a port in the settings it is the one before a restart, the usual one, or any: a second network on this
    machine must start all the same.
    """
    if not settings.metrics:
        return None
    refuse_public_host(settings.metrics_host)
    if slot.metrics_ports:
        return listen(settings.metrics_host, slot.metrics_ports[slot.number], shared=True)
    if settings.metrics_port is not None:
        return _listen(settings.metrics_host, settings.metrics_port)
    for port in (*_port_before(settings), METRICS_PORT):
        with suppress(StartupError):
            return _listen(settings.metrics_host, port)
    return _listen(settings.metrics_host, 0)


def _port_before(settings: GatewaySettings) -> tuple[int, ...]:
    """As it stands in the port file, if a gateway wrote one."""
    try:
        return (int(settings.metrics_port_file.read_text()),) if settings.metrics_port_file is not None else ()
    except (OSError, ValueError):
        return ()


def _listen(host: str, port: int) -> socket.socket:
    try:
        return listen(host, port)
    except StartupError as error:
        raise metrics_port_error(error) from None


def metrics_port_error(error: StartupError) -> StartupError:
    return StartupError(f"The metrics have no port: {error.message}".replace("--port", "--metrics-port"))
