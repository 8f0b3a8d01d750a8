"""The database of a network that is operated on this machine: the one named, or the one in a data directory.

A gateway's directory has `postgres/` and its own files side by side; that of `sparewatt up` has the gateway's files one
level down. Both are known.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

GATEWAY_IN_UP = "gateway"
POSTGRES = "postgres"


def gateway_data_dir(data: Path | None, environ: Mapping[str, str] | None = None) -> Path:
    """The directory meant: the one given, as for the gateway itself, or the gateway's default."""
    from sparewatt.gateway.settings import GatewaySettings

    environ = os.environ if environ is None else environ
    given = data or environ.get("SPAREWATT_GATEWAY_DATA") or GatewaySettings().data
    return Path(given).expanduser()


def files_dir(data: Path) -> Path:
    """Where the gateway's own files are: secret, key and journals."""
    return data / GATEWAY_IN_UP if (data / GATEWAY_IN_UP).is_dir() else data


def explicit_database_url(
    database_url: str | None, data: Path | None, environ: Mapping[str, str] | None = None
) -> str | None:
    """The Postgres that somebody named. None: it is the one in the data directory."""
    environ = os.environ if environ is None else environ
    if database_url or (data is not None and (data / POSTGRES).exists()):
        return database_url
    return environ.get("DATABASE_URL") or environ.get("SPAREWATT_GATEWAY_DATABASE_URL") or None


@asynccontextmanager
async def network_database(
    *, database_url: str | None, data: Path | None, may_make: bool = False
) -> AsyncIterator[str]:
    """Its connection string. A Postgres of the directory that does not run is run for the moment."""
    from sparewatt.postgres.server import reachable_postgres

    url = explicit_database_url(database_url, data)
    if url is not None:
        yield url
        return
    async with reachable_postgres(gateway_data_dir(data) / POSTGRES, may_make=may_make) as dsn:
        yield dsn
