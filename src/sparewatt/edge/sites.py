"""Host names of public sites of leases: `LABEL.HOST`, each an origin of its own.

Nothing of the gateway is served there.
"""

from __future__ import annotations

import re

_LABEL = re.compile(r"[0-9a-z](?:[0-9a-z-]{0,61}[0-9a-z])?")


def is_site_host(host: str, sites_host: str | None) -> bool:
    """Whether a `Host` header names a site, or a name that only a site could have."""
    return sites_host is not None and _name(host).endswith(f".{sites_host}")


def site_label(host: str, sites_host: str) -> str | None:
    """The label of a host for which `is_site_host` holds; None if it is none that a lease has."""
    label = _name(host).removesuffix(f".{sites_host}")
    return label if _LABEL.fullmatch(label) else None


def _name(host: str) -> str:
    """Without the port, in lower case; a trailing dot names the same host."""
    return host.partition(":")[0].lower().rstrip(".")
