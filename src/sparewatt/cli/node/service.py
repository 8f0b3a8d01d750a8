"""`sparewatt node service`: a systemd unit, launchd plist or Windows task that starts a node. It installs nothing."""

from __future__ import annotations

import plistlib
import shlex
import sys
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import click

from sparewatt.cli import output
from sparewatt.cli.context import json_option
from sparewatt.cli.groups import examples
from sparewatt.cli.node.agent import node_dir

LABEL = "network.sparewatt.node"
STOP_S = 60
PATH_OPTIONS = ("--serve", "--config")
"""Options of `node join` that name a file."""
KINDS = {"linux": "systemd", "darwin": "launchd", "win32": "windows"}


@click.command("service", context_settings={"ignore_unknown_options": True})
@click.option("--for", "kind", type=click.Choice(["systemd", "launchd", "windows"]), help="[default: this system's]")
@click.option("--data", "data_dir", type=click.Path(path_type=Path), help="The node's directory.")
@json_option
@click.argument("gateway_url", metavar="URL")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[OPTIONS OF node join]…")
@examples(
    "sparewatt node service https://gateway.example > ~/.config/systemd/user/sparewatt-node.service",
    f"sparewatt node service --for launchd https://gateway.example > ~/Library/LaunchAgents/{LABEL}.plist",
    "sparewatt node service --for windows https://gateway.example > node.xml",
)
def service(
    *, kind: str | None, data_dir: Path | None, as_json: bool, gateway_url: str, words: tuple[str, ...]
) -> None:
    """Print a systemd unit, a launchd plist or a Windows task that keeps this node running. Nothing is installed.

    Join once by hand first: a token is good for one node, and does not belong in such a file. Name, region, prices and
    what the node serves with are kept from that join; options given here are added.
    """
    from sparewatt.node.settings import read_saved_settings

    _check(gateway_url, words)
    chosen = kind or KINDS.get(sys.platform, "systemd")
    folder = node_dir(data_dir)
    program = Path(sys.executable).with_name("sparewatt.exe" if sys.platform == "win32" else "sparewatt")
    argv = [str(program), "node", "join", gateway_url, "--data", str(folder), *with_absolute_paths(words)]
    text = {"systemd": systemd_unit, "launchd": launchd_plist, "windows": windows_task}[chosen](argv, folder)
    serves = read_saved_settings(folder).serves()
    if as_json:
        steps = INSTALL_STEPS[chosen]
        output.print_json({"kind": chosen, "text": text, "install": steps, "kept_serving": serves})
        return
    print(text)
    output.note(INSTALL_STEPS[chosen])
    if serves:
        output.note(f"Without --serve or --backend it serves with {serves}, as at the last join from {folder}.")


INSTALL_STEPS = {
    "systemd": (
        "Save it as ~/.config/systemd/user/sparewatt-node.service, then: systemctl --user enable --now sparewatt-node; "
        "loginctl enable-linger keeps it running while you are logged out."
    ),
    "launchd": f"Save it as ~/Library/LaunchAgents/{LABEL}.plist, then: launchctl load -w on that file.",
    "windows": "Save it as node.xml, then: schtasks /Create /TN Sparewatt /XML node.xml",
}


def with_absolute_paths(words: tuple[str, ...]) -> list[str]:
    """A service starts in another working directory, where relative paths would not be found."""
    absolute, is_path = [], False
    for word in words:
        name, equals, path = word.partition("=")
        if is_path:
            absolute.append(str(Path(word).expanduser().absolute()))
        elif equals and name in PATH_OPTIONS:
            absolute.append(f"{name}={Path(path).expanduser().absolute()}")
        else:
            absolute.append(word)
        is_path = not is_path and word in PATH_OPTIONS
    return absolute


def _check(gateway_url: str, words: tuple[str, ...]) -> None:
    """Parse the options as `node join` does, so that a mistake is an error now and not at the next boot."""
    from sparewatt.cli.node.node import join

    with join.make_context("sparewatt node join", [gateway_url, *words]) as context:
        given: dict[str, Any] = context.params
    if given["token"]:
        raise click.UsageError("Join once by hand with the token; a file that others may read is no place for it.")
    if given["data_dir"]:
        raise click.UsageError("Give --data before the URL.")


def systemd_unit(argv: list[str], _folder: Path) -> str:
    """A unit of the user's own manager, older versions of which support no more sandboxing than this."""
    start = shlex.join(argv).replace("%", "%%").replace("$", "$$")
    return f"""[Unit]
Description=Sparewatt node: lends this machine's GPU to a network
After=network-online.target
Wants=network-online.target

[Service]
ExecStart={start}
Restart=always
RestartSec=10
# The first signal finishes running answers.
KillMode=mixed
TimeoutStopSec={STOP_S}
NoNewPrivileges=yes
Nice=5

[Install]
WantedBy=default.target
"""


def launchd_plist(argv: list[str], folder: Path) -> str:
    facts = {
        "Label": LABEL,
        "ProgramArguments": argv,
        "RunAtLoad": True,
        "KeepAlive": True,
        "ExitTimeOut": STOP_S,
        "ProcessType": "Background",
        "StandardErrorPath": str(folder / "launchd.log"),
    }
    return plistlib.dumps(facts, sort_keys=False).decode()


def windows_task(argv: list[str], folder: Path) -> str:
    program, *rest = argv
    words = " ".join(f'"{word}"' if " " in word or not word else word for word in rest)
    return f"""<?xml version="1.0" encoding="UTF-16"?>
<Task version="1.3" xmlns="http://schemas.microsoft.com/windows/2004/02/mit/task">
  <RegistrationInfo><Description>Sparewatt node</Description></RegistrationInfo>
  <Triggers><LogonTrigger><Enabled>true</Enabled></LogonTrigger></Triggers>
  <Settings>
    <MultipleInstancesPolicy>IgnoreNew</MultipleInstancesPolicy>
    <DisallowStartIfOnBatteries>true</DisallowStartIfOnBatteries>
    <StopIfGoingOnBatteries>true</StopIfGoingOnBatteries>
    <ExecutionTimeLimit>PT0S</ExecutionTimeLimit>
    <RestartOnFailure><Interval>PT1M</Interval><Count>999</Count></RestartOnFailure>
  </Settings>
  <Actions>
    <Exec>
      <Command>{escape(program)}</Command>
      <Arguments>{escape(words)}</Arguments>
      <WorkingDirectory>{escape(str(folder))}</WorkingDirectory>
    </Exec>
  </Actions>
</Task>
"""
