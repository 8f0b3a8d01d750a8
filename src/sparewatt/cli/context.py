"""Which network a command talks to, and the options every such command shares.

The address and the key come from the options, else from the environment, else from the last login, else from the
network last started on this machine that is still there. A key that belongs to one network is never sent to another
one's address.
"""

from __future__ import annotations

import functools
import ipaddress
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click

from sparewatt.cli.credentials import read_logins
from sparewatt.cli.errors import CliError, ExitCode

R = TypeVar("R")

RANKINGS = ("fast", "balanced", "economy", "neuralgrid")
SCOPES = ("inference", "lease", "node", "admin")

_REMEMBERED_MAX = 5
"""Networks started on one machine at the same time are few; older ones are gone."""


@dataclass(frozen=True, slots=True)
class NetworkContext:
    """Where to send requests. The key is kept out of every text made of this."""

    base_url: str
    api_key: str = field(repr=False)


def resolve_network(
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    insecure: bool = False,
    environ: Mapping[str, str] | None = None,
) -> NetworkContext:
    """Options before environment before logins before the networks started here."""
    environ = os.environ if environ is None else environ
    url = base_url or environ.get("SPAREWATT_BASE_URL") or None
    key = api_key or environ.get("SPAREWATT_API_KEY") or None
    asked = _checked_url(url, insecure=insecure) if url else None
    if asked and key:
        return NetworkContext(asked, _checked_key(key))
    if asked:
        return _network_at(asked, environ)
    last = _last_network(environ)
    return NetworkContext(_checked_url(last.base_url, insecure=insecure), _checked_key(key) if key else last.api_key)


def _network_at(base_url: str, environ: Mapping[str, str]) -> NetworkContext:
    """The network of this address, if it was started here: a key goes to no other address than its own."""
    for network in _known_networks(environ):
        if network.base_url == base_url:
            return network
    raise CliError(
        f"There is no API key for {base_url}.",
        next_step=f"Log in with 'sparewatt login --base-url {base_url}', or set SPAREWATT_API_KEY.",
        exit_code=ExitCode.AUTH,
    )


def _last_network(environ: Mapping[str, str]) -> NetworkContext:
    for network in _known_networks(environ):
        return network
    raise CliError(
        "No network is known. Start one with 'make up' or 'sparewatt up', "
        "or set SPAREWATT_BASE_URL and SPAREWATT_API_KEY."
    )


def resolve_address(
    *, base_url: str | None = None, insecure: bool = False, environ: Mapping[str, str] | None = None
) -> str:
    """Where to log in: as `resolve_network`, without a key."""
    environ = os.environ if environ is None else environ
    url = base_url or environ.get("SPAREWATT_BASE_URL") or _last_network(environ).base_url
    return _checked_url(url, insecure=insecure)


def _normal_url(url: str) -> str:
    """Without a slash at the end; `/v1` is added to an address that names no path."""
    url = url.strip().rstrip("/")
    return url if urlsplit(url).path else f"{url}/v1"


def _checked_url(url: str, *, insecure: bool) -> str:
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    if parts.scheme not in {"http", "https"} or not host or parts.query or parts.fragment:
        raise _bad_url("The base URL is not an address of a network.", "Write it like https://example.org/v1.")
    if "@" in parts.netloc:
        raise _bad_url("The base URL must not carry a user or password.", "Put the key in SPAREWATT_API_KEY.")
    if parts.scheme == "http" and not insecure and not is_this_machine(host):
        raise _bad_url(
            f"Plain http:// to {host} would send your key unencrypted.",
            "Use https://, or pass --insecure if you trust every machine on the way.",
        )
    return _normal_url(url)


def _bad_url(message: str, next_step: str) -> CliError:
    return CliError(message, next_step=next_step, exit_code=ExitCode.USAGE)


def _checked_key(key: str) -> str:
    """A key that cannot stand in a header is refused here, where the message does not repeat it."""
    key = key.strip()
    if key.isascii() and key.isprintable() and " " not in key:
        return key
    raise CliError(
        "The API key contains characters that no key has.",
        next_step="Copy it again, without spaces or quotes.",
        exit_code=ExitCode.AUTH,
    )


def is_this_machine(host: str) -> bool:
    """Loopback, or the address that means "every address of this machine"."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def recent_networks_file(environ: Mapping[str, str] | None = None) -> Path:
    """Where this machine notes the networks that were started last."""
    environ = os.environ if environ is None else environ
    state = environ.get("XDG_STATE_HOME")
    folder = Path(state) if state else Path.home() / ".local" / "state"
    return folder / "sparewatt" / "last.json"


def remember_network(ready_file: Path) -> None:
    """Make the network of `ready_file` the one that commands on this machine talk to, as long as it is there."""
    pointer = recent_networks_file()
    pointer.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    newest = ready_file.absolute()
    paths = [newest, *(path for path in _earlier_files(pointer) if path != newest)][:_REMEMBERED_MAX]
    fresh = pointer.with_name(f"{pointer.name}.{os.getpid()}")
    fresh.write_text(json.dumps({"ready_files": [str(path) for path in paths]}) + "\n", encoding="utf-8")
    fresh.replace(pointer)


def _earlier_files(pointer: Path) -> list[Path]:
    """What stood in the pointer; one that cannot be read is written anew."""
    try:
        return _ready_files(pointer)
    except CliError:
        return []


def _ready_files(pointer: Path) -> list[Path]:
    """Newest first. An older pointer holds one file, as `ready_file`."""
    noted = _read_object(pointer)
    if noted is None:
        return []
    paths = noted.get("ready_files", [noted.get("ready_file")])
    if not isinstance(paths, list) or not all(isinstance(path, str) and path for path in paths):
        raise _damaged_file(pointer)
    return [Path(path) for path in paths]


def _known_networks(environ: Mapping[str, str]) -> Iterator[NetworkContext]:
    """Where somebody logged in on purpose, then what was started here."""
    for login in read_logins(environ):
        yield NetworkContext(_checked_url(login.base_url, insecure=True), _checked_key(login.api_key))
    yield from _remembered_networks(environ)


def _remembered_networks(environ: Mapping[str, str]) -> Iterator[NetworkContext]:
    """The networks started here whose files are still there, newest first; who uses one looks at its encryption."""
    for ready_file in _ready_files(recent_networks_file(environ)):
        ready = _read_object(ready_file)
        if ready is not None:
            base_url, api_key = (_text(ready, name, of=ready_file) for name in ("base_url", "api_key"))
            yield NetworkContext(_checked_url(base_url, insecure=True), _checked_key(api_key))


def last_started_network(environ: Mapping[str, str] | None = None) -> tuple[Path, Mapping[str, object]] | None:
    """The file of the network last started here that is still there, and what it says."""
    environ = os.environ if environ is None else environ
    for ready_file in _ready_files(recent_networks_file(environ)):
        ready = _read_object(ready_file)
        if ready is not None:
            return ready_file, ready
    return None


def _read_object(path: Path) -> dict[str, object] | None:
    try:
        value = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CliError(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError:
        raise _damaged_file(path) from None
    if not isinstance(value, dict):
        raise _damaged_file(path)
    return value


def _text(value: Mapping[str, object], name: str, *, of: Path) -> str:
    text = value.get(name)
    if not isinstance(text, str) or not text:
        raise _damaged_file(of)
    return text


def _damaged_file(path: Path) -> CliError:
    return CliError(
        f"{path} is damaged.",
        next_step="Start the network again with 'make up' or 'sparewatt up', which writes it anew.",
    )


def network_options(command: Callable[..., R]) -> Callable[..., R]:
    """Give a command `--base-url`, `--api-key` and `--insecure`, and a `ApiClient` as its first argument."""

    @click.option("--base-url", metavar="URL", help="Address of the network, ending in /v1.  [env: SPAREWATT_BASE_URL]")
    @click.option("--api-key", metavar="KEY", help="Your key; the variable is safer.  [env: SPAREWATT_API_KEY]")
    @click.option("--insecure", is_flag=True, help="Allow plain http:// to another machine.")
    @functools.wraps(command)
    def with_client(*, base_url: str | None, api_key: str | None, insecure: bool, **rest: Any) -> R:
        from sparewatt.cli.client import ApiClient

        network = resolve_network(base_url=base_url, api_key=api_key, insecure=insecure)
        return command(ApiClient(network), **rest)

    return with_client


def address_options(command: Callable[..., R]) -> Callable[..., R]:
    """As `network_options`, for commands that need no key: a `ApiClient` without one comes first."""

    @click.option("--base-url", metavar="URL", help="Address of the network, ending in /v1.  [env: SPAREWATT_BASE_URL]")
    @click.option("--insecure", is_flag=True, help="Allow plain http:// to another machine.")
    @functools.wraps(command)
    def with_client(*, base_url: str | None, insecure: bool, **rest: Any) -> R:
        from sparewatt.cli.client import ApiClient

        return command(
            ApiClient(NetworkContext(resolve_address(base_url=base_url, insecure=insecure), api_key="")), **rest
        )

    return with_client


json_option = click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
quiet_option = click.option("-q", "--quiet", is_flag=True, help="Print ids only, one per line.")
