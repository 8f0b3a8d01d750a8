"""The database of a network that runs on this machine: the one that is named, or the Postgres in a data directory."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

POSTGRES = "postgres"


def gateway_data_dir(data: Path | None) -> Path:
    """The gateway's data directory: by the option, the environment, or the gateway's default."""
    from sparewatt.gateway.settings import GatewaySettings

    return Path(data or os.environ.get("SPAREWATT_GATEWAY_DATA") or GatewaySettings().data).expanduser()


@asynccontextmanager
async def network_database(
    *, database_url: str | None, data: Path | None, may_make: bool = False
) -> AsyncIterator[str]:
    """Its connection string. A Postgres of the data directory that does not run is started for the duration."""
    from sparewatt.postgres.supervision import reachable_postgres

    if not database_url and not (data is not None and (data / POSTGRES).exists()):
        database_url = os.environ.get("DATABASE_URL") or os.environ.get("SPAREWATT_GATEWAY_DATABASE_URL")
    if database_url:
        yield database_url
        return
    async with reachable_postgres(gateway_data_dir(data) / POSTGRES, may_make=may_make) as dsn:
        yield dsn
