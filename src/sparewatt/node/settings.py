"""What the owner of a node may set, and which of it a join saves next to the key (`terms.json`).

A later join from the same directory without flags is the same node. A flag overrides what was saved. Neither the
gateway's address nor any secret is saved.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from sparewatt.core.errors import StartupError
from sparewatt.core.limits import DRAIN_S
from sparewatt.link.websocket_library import WebSocketLibrary
from sparewatt.machine.data_dir import write_private
from sparewatt.node.facts.owner_facts import AUTO_FACTS, OwnerFacts, parse_owner_facts
from sparewatt.protocol.link.node_report import FETCH_HOSTS_MAX
from sparewatt.protocol.openai.media import HOST

SAVED_SETTINGS_FILE = "terms.json"
REGION_DEFAULT = "local"
"""The region of a node whose owner names none."""
PRICE_FIELDS = ("hourly_usd", "prompt_usd_per_mtok", "completion_usd_per_mtok")
SERVING_FIELDS = ("backend_url", "serve", "serve_as", "serve_slots", "server_facts")
AUTO_BACKEND = "auto"
"""As `backend_url`: ignore the saved server, and look for one."""
AUTO_SOCKET = "auto"
"""As `container_socket`: likewise."""
AUTO_DIR = "auto"
"""As `machine_dir`: likewise."""
NO_HOSTS = NO_CHAIN = "none"
"""As `allow_fetch_hosts` or `chain_url`: forget what was saved."""
_Positive = Annotated[float, Meta(gt=0, le=1e6)]


def default_data_dir() -> Path:
    """Of this user: under XDG_DATA_HOME, or under LOCALAPPDATA on Windows."""
    given = os.environ.get("XDG_DATA_HOME") or (os.environ.get("LOCALAPPDATA") if os.name == "nt" else None)
    return (Path(given) if given else Path.home() / ".local" / "share") / "sparewatt" / "node"


@dataclass(frozen=True, slots=True)
class NodeSettings:
    gateway_url: str
    data_dir: Path = field(default_factory=default_data_dir)
    token: str | None = None
    backend_url: str | None = None
    backend_wait_s: Annotated[float, Meta(ge=0, le=3600)] = 10.0
    """How long a join waits for a model server that is just starting."""
    serve: Path | None = None
    """A GGUF file to serve with the built-in llama.cpp, instead of using a server that already runs."""
    serve_as: str | None = None
    serve_slots: Annotated[int, Meta(ge=1, le=64)] = 4
    serve_context: Annotated[int, Meta(ge=256, le=1 << 20)] = 4096
    """Tokens of context for each answer."""
    server_facts: str | None = None
    """What the owner states about the model server, as in `slots=64 kv-tokens=35000`."""
    allow_fetch_hosts: str | None = None
    """Hosts from which this node may fetch pictures that requests name by address, separated by spaces."""
    name: str | None = None
    region: str = REGION_DEFAULT
    gpu: str | None = None
    vram_gb: _Positive | None = None
    tflops: _Positive | None = None
    hourly_usd: str = "0.10"
    prompt_usd_per_mtok: str | None = None
    completion_usd_per_mtok: str | None = None
    """Without prices per million tokens they follow from the price per hour and the measured speed."""
    leases: bool = False
    """Offer the machine for leases: then the node signs that it serves the provider which its owner registers."""
    lease_wallet: Annotated[str, Meta(pattern=r"^0x[0-9a-fA-F]{40}\Z")] | None = None
    """The one address that may be the node's provider; None: the one that the gateway keeps for the owner's account."""
    chain_url: str | None = None
    """A chain's node of the owner's own choice, by which lookups are checked; None: the gateway's word counts."""
    container_socket: Path | None = None
    """The socket of the container engine that leases run on; None: Docker's or podman's, where it usually is."""
    leases_untried: bool = False
    """Bid on leases although no container was started here: to try the auction alone. What is won may never start, and
    costs a bond then."""
    machine_dir: Path | None = None
    """Where all agents of this machine keep what they have promised to leases; None: one place for all its users."""
    speed_limit_tps: _Positive | None = None
    """The most tokens per second of one answer: for owners who want to use their machine meanwhile."""
    bench_gpu: bool = True
    """Benchmark the GPU itself at the first join, if torch or CuPy is installed."""
    insecure: bool = False
    link_via: Annotated[str, Meta(pattern=r"^http://[0-9.]+:[0-9]+\Z")] | None = None
    """Of a node in a lease: where its machine's agent passes links on to the gateway. Set by that agent."""
    link_library: WebSocketLibrary = "auto"
    """`auto` is picows where it is installed, else aiohttp."""
    drain_s: Annotated[float, Meta(ge=0, le=3600)] = DRAIN_S
    log_level: str = "info"

    def owner_facts(self) -> OwnerFacts:
        """What the owner states about the server, also by the flags that start one here. Raises StartupError."""
        facts = parse_owner_facts(self.server_facts)
        if self.serve is None or facts.kv_tokens is not None:
            return facts
        return dataclasses.replace(facts, kv_tokens=self.serve_slots * self.serve_context)

    def fetch_hosts(self) -> tuple[str, ...]:
        """Raises StartupError for what is no host name."""
        hosts = tuple(dict.fromkeys((self.allow_fetch_hosts or "").lower().split()))
        wrong = [host for host in hosts if not HOST.fullmatch(host)]
        if wrong or len(hosts) > FETCH_HOSTS_MAX:
            what = f"{wrong[0]!r} is no host" if wrong else f"{len(hosts)} hosts are more than {FETCH_HOSTS_MAX}"
            raise StartupError(f"{what}. --allow-fetch-host takes a public DNS name, as images.example.org.")
        return hosts


_DEFAULTS = {setting.name: setting.default for setting in dataclasses.fields(NodeSettings)}


class SavedSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """None stands for the default of `NodeSettings`."""

    name: str | None = None
    region: str | None = None
    hourly_usd: str | None = None
    prompt_usd_per_mtok: str | None = None
    completion_usd_per_mtok: str | None = None
    backend_url: str | None = None
    serve: str | None = None
    """Absolute, as the next join may run in another folder."""
    serve_as: str | None = None
    serve_slots: int | None = None
    server_facts: str | None = None
    allow_fetch_hosts: str | None = None
    leases: bool | None = None
    lease_wallet: str | None = None
    chain_url: str | None = None
    container_socket: str | None = None
    """Absolute."""
    machine_dir: str | None = None
    """Likewise."""

    def serves(self) -> str | None:
        """What a join without flags would serve with; None is any server that it finds."""
        return self.serve or self.backend_url


def read_saved_settings(data_dir: Path) -> SavedSettings:
    path = data_dir / SAVED_SETTINGS_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=SavedSettings)
    except FileNotFoundError:
        return SavedSettings()
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StartupError(
            f"{path} cannot be read ({error}). Remove it, and repeat the flags of your first join at the next one."
        ) from None


def merge_saved_settings(given: Mapping[str, Any], saved: SavedSettings) -> dict[str, Any]:
    """A given price replaces all saved prices: a new one per hour must not lose to old ones per token. So does a
    given server."""
    has_price = any(name in given for name in PRICE_FIELDS)
    has_server = "backend_url" in given or "serve" in given
    left_out = (PRICE_FIELDS if has_price else ()) + (SERVING_FIELDS if has_server else ())
    values = {name: value for name, value in msgspec.to_builtins(saved).items() if name not in left_out} | dict(given)
    if values.get("backend_url") == AUTO_BACKEND:
        del values["backend_url"]
    if values.get("server_facts") == AUTO_FACTS:
        del values["server_facts"]
    if values.get("allow_fetch_hosts") == NO_HOSTS:
        del values["allow_fetch_hosts"]
    if values.get("chain_url") == NO_CHAIN:
        del values["chain_url"]
    if str(values.get("container_socket")) == AUTO_SOCKET:
        del values["container_socket"]
    if str(values.get("machine_dir")) == AUTO_DIR:
        del values["machine_dir"]
    return values


def save_settings(settings: NodeSettings) -> None:
    """Write them if they differ from those that are saved."""
    values = {name: getattr(settings, name) for name in SavedSettings.__struct_fields__}
    for name in ("serve", "container_socket", "machine_dir"):
        if values[name] is not None:
            values[name] = str(values[name].expanduser().absolute())
    saved = SavedSettings(**{name: value for name, value in values.items() if value != _DEFAULTS[name]})
    if saved != read_saved_settings(settings.data_dir):
        write_private(settings.data_dir / SAVED_SETTINGS_FILE, msgspec.json.encode(saved))
