"""Which addresses the settings allow, and the names under which the gateway is reached. Pure.

Safe by default: a gateway that speaks plain HTTP listens on this machine only, unless a proxy in front ends TLS.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from urllib.parse import urlsplit

from sparewatt.core.address_rules import names_loopback
from sparewatt.core.errors import StartupError
from sparewatt.gateway.settings import GatewaySettings
from sparewatt.link.handshake import host_of

PORT_MAX = 65535
SITES_HOST = re.compile(r"[0-9a-z](?:[0-9a-z.-]{0,200}[0-9a-z])?")


def refuse_unsafe(settings: GatewaySettings) -> None:
    """Raises StartupError if keys and prompts could be read by strangers."""
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise StartupError("TLS needs both --tls-cert and --tls-key.")
    _refuse_plain_public_url(settings.public_url)
    _refuse_shared_host(settings)
    if is_loopback(settings.host):
        return
    if not settings.has_tls and not settings.behind_proxy:
        raise StartupError(
            f"Refusing to listen on {settings.host}: without TLS, keys and prompts would cross the network in the "
            "clear. Give --tls-cert and --tls-key, or put a TLS proxy in front and say --behind-proxy."
        )
    if settings.development:
        raise StartupError(
            f"Refusing to listen on {settings.host}: a development network gives test money to anybody. "
            "Leave out --development."
        )
    is_unspecified = ipaddress.ip_address(settings.host).is_unspecified
    if settings.public_url is None and (settings.behind_proxy or is_unspecified):
        raise StartupError(
            f"Listening on {settings.host} needs --public-url https://your.name: nodes sign the name that they dial, "
            "and mails and pages show it."
        )


def refuse_unlinkable(settings: GatewaySettings) -> None:
    """Raises StartupError if nodes could not reach the link ports of several processes."""
    if settings.processes == 1:
        return
    if not hasattr(socket, "SO_REUSEPORT"):
        raise StartupError("Several processes on one port need Linux or macOS. Leave out --processes.")
    if settings.link_port is None:
        if settings.behind_proxy or not is_loopback(settings.host):
            raise StartupError(
                f"--processes {settings.processes} on an address that others reach needs --link-port: nodes dial the "
                f"{settings.processes} ports from there on, so a firewall or proxy must let them through."
            )
        return
    ports = range(settings.link_port, settings.link_port + settings.processes)
    if ports[-1] > PORT_MAX or settings.port in ports:
        raise StartupError(
            f"--link-port {settings.link_port} leaves no {settings.processes} ports next to port {settings.port}. "
            "Choose another."
        )


def _refuse_shared_host(settings: GatewaySettings) -> None:
    """The pages of tenants must not have the dashboard's host, nor the dashboard one of theirs."""
    sites = settings.effective_sites_host
    own = (urlsplit(settings.public_url).hostname or "") if settings.public_url is not None else ""
    if sites is None or settings.sites_host is None:
        return
    if not SITES_HOST.fullmatch(sites):
        raise StartupError(f"--sites-host {sites[:100]!r} is no host name. It looks like leases.example.")
    if own == sites or own.endswith(f".{sites}"):
        raise StartupError(
            f"--sites-host {sites} would put pages of tenants beside the dashboard at {own}. Choose another name, best "
            "of another domain."
        )


def _refuse_plain_public_url(url: str | None) -> None:
    if url is None:
        return
    try:
        parts = urlsplit(url)
        valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is no number
        valid = False
    if not valid or parts.query or parts.fragment or "@" in parts.netloc:
        raise StartupError(f"--public-url {url!r} is no address. It looks like https://gateway.example.")
    if parts.scheme == "http" and not names_loopback(parts.hostname or ""):
        raise StartupError(
            f"--public-url {url} is plain http://, over which nodes and clients refuse to send keys. Use https://."
        )


def is_loopback(host: str) -> bool:
    """Raises StartupError if `host` is no IP address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        raise StartupError(f"--host takes an IP address, not {host!r}.") from None


def own_hosts(settings: GatewaySettings, *, port: int, link_port: int | None = None) -> frozenset[str]:
    """The names under which a node may dial this gateway; with `link_port`, also this process of it."""
    names = {f"{host}:{each}" for host in _local_names(settings) for each in (port, link_port) if each is not None}
    if settings.public_url is not None:
        public = host_of(settings.public_url)
        names.add(public)
        names |= {f"{public.rpartition(':')[0]}:{link_port}"} if link_port is not None else set()
    return frozenset(names)


def own_root_url(settings: GatewaySettings, *, port: int) -> str:
    return (settings.public_url or f"{_scheme(settings)}://{_bracketed(settings.host)}:{port}").rstrip("/")


def own_origins(settings: GatewaySettings, *, port: int) -> frozenset[str]:
    """The origins of this gateway's pages, as a browser sends them."""
    local = {origin_of(f"{_scheme(settings)}://{_bracketed(host)}:{port}") for host in _local_names(settings)}
    return frozenset(local | ({origin_of(settings.public_url)} if settings.public_url is not None else set()))


def own_site_url(settings: GatewaySettings, label: str, *, port: int) -> str | None:
    """The public address of a lease's site; None where there are no names for them."""
    sites = settings.effective_sites_host
    if sites is None:
        return None
    if settings.public_url is None:
        return origin_of(f"{_scheme(settings)}://{label}.{sites}:{port}") + "/"
    parts = urlsplit(settings.public_url)
    return f"{parts.scheme}://{label}.{sites}{f':{parts.port}' if parts.port else ''}/"


def origin_of(url: str) -> str:
    """As browsers write it: scheme and host in lower case, and the port unless it is the scheme's default."""
    parts = urlsplit(url)
    host = _bracketed(parts.hostname or "")
    if parts.port is None or (parts.scheme, parts.port) in {("http", 80), ("https", 443)}:
        return f"{parts.scheme}://{host}"
    return f"{parts.scheme}://{host}:{parts.port}"


def _local_names(settings: GatewaySettings) -> set[str]:
    return {settings.host, "localhost"} if is_loopback(settings.host) else {settings.host}


def _scheme(settings: GatewaySettings) -> str:
    return "https" if settings.has_tls else "http"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
