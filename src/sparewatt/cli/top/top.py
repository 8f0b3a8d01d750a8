"""`sparewatt top`: a live view of the network in the terminal, or one view after another into a pipe."""

from __future__ import annotations

import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import click
import msgspec

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient
from sparewatt.cli.context import network_options
from sparewatt.cli.errors import ApiError, CliError, ExitCode
from sparewatt.cli.groups import examples
from sparewatt.cli.nodes import describe_hardware
from sparewatt.cli.param_types import FiniteRange
from sparewatt.cli.top.screen import ScreenLine, as_text, render
from sparewatt.cli.top.view import PulseWindow, TopNodeRow, TopView, node_row, public_view
from sparewatt.protocol.api.network import NetworkOverview
from sparewatt.protocol.api.nodes import Node, NodeList
from sparewatt.protocol.api.operations import Pulse

if TYPE_CHECKING:
    from rich.text import Text

ANSWER_S = 10.0
"""A gateway that does not answer for longer is shown as lost."""
NODES_EVERY_S = 5.0
"""The list of all nodes can be long, and changes slowly."""
PLAIN_CHARS = 160


class TopViewSource:
    """Fetches views: from the pulse, with an operator's key, else from the public endpoints."""

    def __init__(self, client: ApiClient, *, now_s: Callable[[], float]) -> None:
        self._client = client
        self._now_s = now_s
        self._window = PulseWindow(client.root_url)
        self._is_operator = True
        self._nodes: tuple[float, list[TopNodeRow]] | None = None

    @property
    def has_rates(self) -> bool:
        """Whether a second view shows more than the first."""
        return self._is_operator

    def fetch(self) -> TopView:
        """Raises CliError."""
        if self._is_operator:
            try:
                return self._window.update(self._client.get("/pulse", timeout_s=ANSWER_S).parse(Pulse))
            except ApiError as error:
                if error.http_status not in {403, 404}:  # an older gateway has none
                    raise
                self._is_operator = False
        network = self._client.get("/network", timeout_s=ANSWER_S).parse(NetworkOverview)
        return public_view(network, self._client.root_url, self._listed_nodes())

    def _listed_nodes(self) -> list[TopNodeRow]:
        """An empty list for a key that may not see them."""
        now_s = self._now_s()
        if self._nodes is None or now_s - self._nodes[0] >= NODES_EVERY_S:
            try:
                nodes = self._client.get("/nodes", timeout_s=ANSWER_S).parse(NodeList).data
            except ApiError as error:
                if error.http_status not in {401, 403}:
                    raise
                nodes = []
            self._nodes = now_s, [_listed_row(node) for node in nodes]
        return self._nodes[1]


def _listed_row(node: Node) -> TopNodeRow:
    power_watts = node.sensors.power_watts if node.sensors else None
    return node_row(node, gpu=describe_hardware(node), power_watts=power_watts)


@click.command()
@click.option(
    "--interval", type=FiniteRange(0.5, 60), default=1.0, show_default=True, help="Seconds between two updates."
)
@click.option("--once", is_flag=True, help="Print one view and exit.")
@network_options
@examples("sparewatt top", "sparewatt top --once --json")
def top(client: ApiClient, *, interval: float, once: bool, as_json: bool) -> None:
    """Show what the network does right now: rates, models, the busiest nodes and those in trouble.

    An operator's key shows all of it; any other, what is public. Ctrl-C ends it. Into a pipe or a file it
    writes one view after the other, with --json one object per line.
    """
    source = TopViewSource(client, now_s=time.monotonic)
    if once:
        _show_once(source, interval=interval, as_json=as_json)
        return
    first = source.fetch()  # outside of the loop, so that a wrong address or key ends the command
    try:
        if as_json or not output.on_terminal():
            _write(source, first, interval=interval, as_json=as_json)
        else:
            _watch(source, first, interval=interval)
    except (KeyboardInterrupt, BrokenPipeError):
        return


def _show_once(source: TopViewSource, *, interval: float, as_json: bool) -> None:
    """Rates need two pulses."""
    view = source.fetch()
    if source.has_rates:
        time.sleep(interval)
        view = source.fetch()
    if as_json:
        output.print_json(msgspec.to_builtins(view))
    else:
        width = shutil.get_terminal_size().columns if output.on_terminal() else PLAIN_CHARS
        print(as_text(render(view, width=width, height=None)))


def _views(source: TopViewSource, first: TopView, *, interval: float) -> Iterator[tuple[TopView, str]]:
    """One view after another, each with a note; while the gateway is lost, the last view again."""
    view, lost_s = first, None
    yield view, ""
    while True:
        time.sleep(interval)
        try:
            view, lost_s = source.fetch(), None
            note = ""
        except CliError as error:
            if error.exit_code is ExitCode.AUTH:
                raise
            lost_s = time.monotonic() if lost_s is None else lost_s
            note = f"reconnecting for {time.monotonic() - lost_s:.0f} s: {error.message}"
        yield view, note


def _write(source: TopViewSource, first: TopView, *, interval: float, as_json: bool) -> None:
    for view, note in _views(source, first, interval=interval):
        if note:
            output.note(note)
        elif as_json:
            print(msgspec.json.encode(view).decode(), flush=True)
        else:
            print(as_text(render(view, width=PLAIN_CHARS, height=None)) + "\n", flush=True)


def _watch(source: TopViewSource, first: TopView, *, interval: float) -> None:
    """On the terminal's alternate screen, so that its old content is back afterwards."""
    from rich.console import Console
    from rich.live import Live

    console = Console(color_system=None if output.no_colour() else "auto")
    with _exit_on_sigterm(), Live(console=console, screen=True, auto_refresh=False) as live:
        for view, note in _views(source, first, interval=interval):
            width, height = console.size
            live.update(_styled(render(view, width=width, height=height - 1, note=note)), refresh=True)


def _styled(lines: list[ScreenLine]) -> Text:
    from rich.text import Text

    text = Text(no_wrap=True, overflow="crop")
    for line in lines:
        for cell in line:
            text.append(cell.text, style=cell.style or None)
        text.append("\n")
    return text


@contextmanager
def _exit_on_sigterm() -> Iterator[None]:
    """Make SIGTERM an exception, so that the terminal is restored then, too."""

    def end(number: int, _frame: FrameType | None) -> NoReturn:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
