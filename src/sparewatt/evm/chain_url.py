"""Which URL of a chain's node is trusted: one of this machine, or one with TLS."""

from __future__ import annotations

from urllib.parse import urlsplit

from sparewatt.core.address_rules import names_loopback
from sparewatt.core.errors import StartupError


def check_chain_url(url: str) -> str:
    """Refuse a URL over which a man in the middle could lie about the chain. Raises StartupError."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise StartupError("CHAIN_URL must be the address of a JSON-RPC endpoint, like https://rpc.example.")
    if parts.scheme == "http" and not names_loopback(parts.hostname):
        raise StartupError(f"Refusing plain http:// to {parts.hostname}: anyone on the way could lie about the chain.")
    return url
