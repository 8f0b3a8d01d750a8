"""`sparewatt gateway service`: prints the systemd unit of a gateway. It installs nothing."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

if TYPE_CHECKING:
    from sparewatt.gateway.settings import GatewaySettings

ENV_FILE = Path("/etc/sparewatt/gateway.env")
DATA = Path("/var/lib/sparewatt")
STOP_MORE_S = 30
"""Time after the drain to write the rest of the journal into the books and to stop the database."""


class GatewayUnit(NamedTuple):
    """What differs from gateway to gateway."""

    program: str
    user: str
    data: Path
    words: tuple[str, ...]
    drain_s: float
    low_port: bool
    reloads: bool


@click.command("service", context_settings={"ignore_unknown_options": True})
@click.option("--user", default="sparewatt", show_default=True, help="The account it runs under; make it first.")
@click.option("--data", type=click.Path(path_type=Path), default=DATA, show_default=True, help="Where it keeps things.")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[OPTIONS OF gateway run]…")
def service(*, user: str, data: Path, words: tuple[str, ...]) -> None:
    """Print a systemd unit that runs this gateway with these options. Nothing is installed.

    \b
    Example:
      sparewatt gateway service --behind-proxy --public-url https://gateway.example \\
        | sudo tee /etc/systemd/system/sparewatt-gateway.service
    """
    settings = _check(words)
    print(
        render_unit(
            GatewayUnit(
                program=str(Path(sys.executable).with_name("sparewatt")),
                user=user,
                data=data.absolute(),
                words=words,
                drain_s=settings.drain_s,
                low_port=0 < settings.port < 1024,
                reloads=settings.has_tls,
            )
        )
    )


def _check(words: tuple[str, ...]) -> GatewaySettings:
    """Read the options as `gateway run` does, so that a mistake is an error now and not at the next boot.

    Raises StartupError.
    """
    from sparewatt.cli.gateway.gateway import run
    from sparewatt.core.settings import load_settings
    from sparewatt.gateway.addresses import refuse_unlinkable, refuse_unsafe
    from sparewatt.gateway.settings import GatewaySettings

    with run.make_context("sparewatt gateway run", list(words)) as context:
        flags = dict(context.params)
    file = flags.pop("config")
    settings = load_settings(GatewaySettings, section="gateway", flags=flags, env=os.environ, file=file)
    refuse_unsafe(settings)
    refuse_unlinkable(settings)
    return settings


def _directory(data: Path) -> str:
    """systemd creates a directory under /var/lib by itself, owned by the unit's user."""
    if data.parent == Path("/var/lib"):
        return f"StateDirectory={data.name}\nStateDirectoryMode=0700"
    return f"ReadWritePaths={data}"


def render_unit(service: GatewayUnit) -> str:
    """The unit. The gateway can write its own directory only, and cannot gain privileges."""
    argv = (service.program, "gateway", "run", "--data", str(service.data), *service.words)
    start = shlex.join(argv).replace("%", "%%").replace("$", "$$")
    reload = "ExecReload=/bin/kill -HUP $MAINPID\n" if service.reloads else ""
    capability = "CAP_NET_BIND_SERVICE" if service.low_port else ""
    ambient = f"AmbientCapabilities={capability}\n" if capability else ""
    return f"""\
[Unit]
Description=Sparewatt gateway
After=network-online.target postgresql.service
Wants=network-online.target

[Service]
User={service.user}
# DATABASE_URL, SPAREWATT_SECRET and the like; readable by root alone. Without it the gateway runs its own Postgres.
EnvironmentFile=-{ENV_FILE}
ExecStart={start}
{reload}Restart=always
RestartSec=2
# SIGTERM finishes running answers, then the books are written and the database stops.
KillMode=mixed
TimeoutStopSec={service.drain_s + STOP_MORE_S:.0f}
LimitNOFILE=65536
UMask=0077
{_directory(service.data)}

# What it may not do.
CapabilityBoundingSet={capability}
{ambient}NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=read-only
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
RemoveIPC=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
"""
