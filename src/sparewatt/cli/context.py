"""Which network a command talks to, and the options that all such commands share.

Address and API key come from the options, else from the environment, else from the context that `sparewatt use` chose,
else from the last login, else from the network that was started last on this machine and is still there. The key of one
network is never sent to another's address. A context is named by the login's e-mail, or `operator` for the start-up key
of a network of this machine.
"""

from __future__ import annotations

import functools
import ipaddress
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click
import msgspec

from sparewatt.cli.credentials import Text, damaged_file, read_json_file, read_saved, write_json_file
from sparewatt.cli.errors import CliError, ExitCode

R = TypeVar("R")

SCOPES = ("inference", "lease", "node", "admin")
OPERATOR = "operator"
"""A role, and the name of the context of a network that was started here."""

_REMEMBERED_MAX = 5
"""Few networks run on one machine at the same time."""
_MEND = "Start the network again with 'make up' or 'sparewatt up', which replaces this file."


@dataclass(frozen=True, slots=True)
class NetworkContext:
    """Where to send requests, and with which API key."""

    base_url: str
    api_key: str = field(repr=False)
    name: str = ""
    """As `sparewatt use` lists it; empty for a key that was given with the command."""
    is_operator: bool = False


def resolve_network(
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    as_name: str | None = None,
    insecure: bool = False,
    environ: Mapping[str, str] | None = None,
) -> NetworkContext:
    """Options go before the environment, that before logins, and those before networks started here."""
    environ = os.environ if environ is None else environ
    if as_name is not None:
        if base_url or api_key:
            raise _bad_url("--as names address and key.", "Leave out --base-url and --api-key.")
        found = find_context(as_name, environ)
        _checked_url(found.base_url, insecure=insecure)
        return found
    url = base_url or environ.get("SPAREWATT_BASE_URL") or None
    key = api_key or environ.get("SPAREWATT_API_KEY") or None
    if url:
        address = _checked_url(url, insecure=insecure)
        return NetworkContext(address, _checked_key(key)) if key else _network_at(address, environ)
    last = _last_network(environ)
    _checked_url(last.base_url, insecure=insecure)
    return NetworkContext(last.base_url, _checked_key(key)) if key else last


def _network_at(base_url: str, environ: Mapping[str, str]) -> NetworkContext:
    """The network of this address, by a login or because it was started here."""
    for network in known_contexts(environ):
        if network.base_url == base_url:
            return network
    raise CliError(
        f"There is no API key for {base_url}.",
        next_step=f"Log in with 'sparewatt login --base-url {base_url}', or set SPAREWATT_API_KEY.",
        exit_code=ExitCode.AUTH,
    )


def _last_network(environ: Mapping[str, str]) -> NetworkContext:
    for network in known_contexts(environ):
        return network
    raise CliError(
        "No network is known. Start one with 'make up' or 'sparewatt up', "
        "or set SPAREWATT_BASE_URL and SPAREWATT_API_KEY."
    )


def resolve_address(
    *, base_url: str | None = None, insecure: bool = False, environ: Mapping[str, str] | None = None
) -> str:
    """Where to log in: the address of `resolve_network`, for which no key is needed."""
    environ = os.environ if environ is None else environ
    url = base_url or environ.get("SPAREWATT_BASE_URL") or _last_network(environ).base_url
    return _checked_url(url, insecure=insecure)


def _checked_url(url: str, *, insecure: bool) -> str:
    """The address without a slash at its end; `/v1` is added if it has no path. Raises CliError."""
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
    url = url.strip().rstrip("/")
    return url if urlsplit(url).path else f"{url}/v1"


def _bad_url(message: str, next_step: str) -> CliError:
    return CliError(message, next_step=next_step, exit_code=ExitCode.USAGE)


def _checked_key(key: str) -> str:
    """Refuse a key that fits into no header: the error of the HTTP library would repeat it."""
    key = key.strip()
    if key.isascii() and key.isprintable() and " " not in key:
        return key
    raise CliError(
        "The API key contains characters that no key has.",
        next_step="Copy it again, without spaces or quotes.",
        exit_code=ExitCode.AUTH,
    )


def is_this_machine(host: str) -> bool:
    """Whether it is loopback, or the wildcard address (0.0.0.0)."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


class _RecentNetworks(msgspec.Struct):
    """The file `last.json`: paths of ready files, the newest first."""

    ready_files: list[Text] | None = None
    ready_file: Text | None = None
    """The only one, as the first version of this file had it."""


class _ReadyFile(msgspec.Struct):
    """What of a `ready.json` a command needs to use that network."""

    base_url: Text
    api_key: Text


def recent_networks_file(environ: Mapping[str, str] | None = None) -> Path:
    """The file in which this machine notes the networks that were started last."""
    environ = os.environ if environ is None else environ
    state = environ.get("XDG_STATE_HOME")
    folder = Path(state) if state else Path.home() / ".local" / "state"
    return folder / "sparewatt" / "last.json"


def remember_network(ready_file: Path) -> None:
    """Make the network of `ready_file` the default for commands on this machine, as long as that file is there."""
    newest = ready_file.absolute()
    try:
        earlier = _ready_files(os.environ)
    except CliError:  # damaged; replaced below
        earlier = []
    paths = [newest, *(path for path in earlier if path != newest)][:_REMEMBERED_MAX]
    write_json_file(recent_networks_file(), {"ready_files": [str(path) for path in paths]})


def _ready_files(environ: Mapping[str, str]) -> list[Path]:
    """Newest first."""
    file = recent_networks_file(environ)
    noted = read_json_file(file, _RecentNetworks, next_step=_MEND)
    if noted is None:
        return []
    if noted.ready_file is not None:
        return [Path(noted.ready_file)]
    if noted.ready_files is None:
        raise damaged_file(file, next_step=_MEND)
    return [Path(path) for path in noted.ready_files]


def known_contexts(environ: Mapping[str, str] | None = None) -> Iterator[NetworkContext]:
    """The one that was chosen; then logins, since a person made them; then the networks started here.

    Plain http is allowed here: `_checked_url` refuses it for the one network that is used. Raises CliError if the
    chosen one is gone: another account's key in its place would be a surprise.
    """
    environ = os.environ if environ is None else environ
    chosen = read_saved(environ).chosen
    if chosen is not None:
        yield find_context(chosen, environ)
    yield from (each for each in _named_contexts(environ) if each.name != chosen)


def find_context(name: str, environ: Mapping[str, str] | None = None) -> NetworkContext:
    """The context of this name. Raises CliError."""
    names = []
    for each in _named_contexts(os.environ if environ is None else environ):
        if each.name == name:
            return each
        names.append(each.name)
    known = (
        f"This machine knows: {', '.join(names)}." if names else "Log in with 'sparewatt login', or start a network."
    )
    raise CliError(
        f"There is no context {name!r} here now.",
        next_step=f"{known} 'sparewatt use NAME' chooses one.",
        exit_code=ExitCode.NOT_FOUND,
    )


def _named_contexts(environ: Mapping[str, str]) -> Iterator[NetworkContext]:
    """Each under a name of its own: of two that are called the same, the later one's has its network's address."""
    taken: set[str] = set()
    for each in _unnamed_contexts(environ):
        address = urlsplit(each.base_url).netloc
        name = each.name if each.name not in taken else f"{each.name}@{address}"
        if name not in taken:
            taken.add(name)
            yield replace(each, name=name)


def _unnamed_contexts(environ: Mapping[str, str]) -> Iterator[NetworkContext]:
    for login in read_saved(environ).logins:
        address, key = _checked_url(login.base_url, insecure=True), _checked_key(login.api_key)
        yield NetworkContext(address, key, login.email, login.role == OPERATOR)
    for ready_file in _ready_files(environ):
        ready = read_json_file(ready_file, _ReadyFile, next_step=_MEND)
        if ready is not None:
            address, key = _checked_url(ready.base_url, insecure=True), _checked_key(ready.api_key)
            yield NetworkContext(address, key, OPERATOR, is_operator=True)


def last_started_network() -> tuple[Path, Mapping[str, object]] | None:
    """The ready file of the network that was started last and is still there, and its content."""
    for ready_file in _ready_files(os.environ):
        ready = read_json_file(ready_file, dict[str, object], next_step=_MEND)
        if ready is not None:
            return ready_file, ready
    return None


_url_option = click.option(
    "--base-url", metavar="URL", help="Address of the network, ending in /v1.  [env: SPAREWATT_BASE_URL]"
)
_insecure_option = click.option("--insecure", is_flag=True, help="Allow plain http:// to another machine.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
quiet_option = click.option("-q", "--quiet", is_flag=True, help="Print ids only, one per line.")


def network_options(command: Callable[..., R]) -> Callable[..., R]:
    """Give a command `--json` and the options of the network, and an `ApiClient` as its first argument."""

    @lazy_network_options
    @functools.wraps(command)
    def with_client(connect: Callable[[], Any], **rest: Any) -> R:
        return command(connect(), **rest)

    return with_client


def lazy_network_options(command: Callable[..., R]) -> Callable[..., R]:
    """The same for commands that need the network only sometimes: their first argument makes the `ApiClient`."""

    @json_option
    @_url_option
    @click.option("--api-key", metavar="KEY", help="Your key; the variable is safer.  [env: SPAREWATT_API_KEY]")
    @click.option("--as", "as_name", metavar="NAME", help="Another context of this machine ('sparewatt use').")
    @_insecure_option
    @functools.wraps(command)
    def with_network(**words: Any) -> R:
        from sparewatt.cli.client import ApiClient

        given = {name: words.pop(name) for name in ("base_url", "api_key", "as_name", "insecure")}

        def connect() -> ApiClient:
            return ApiClient(resolve_network(**given))

        return command(connect, **words)

    return with_network


def address_options(command: Callable[..., R]) -> Callable[..., R]:
    """The same for commands that need no key: their `ApiClient` has none."""

    @json_option
    @_url_option
    @_insecure_option
    @functools.wraps(command)
    def with_client(*, base_url: str | None, insecure: bool, **rest: Any) -> R:
        from sparewatt.cli.client import ApiClient

        address = resolve_address(base_url=base_url, insecure=insecure)
        return command(ApiClient(NetworkContext(address, api_key="")), **rest)

    return with_client
