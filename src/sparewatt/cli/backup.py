"""`sparewatt backup` and `sparewatt restore`: a whole network in one file, and back."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from sparewatt.cli import output
from sparewatt.cli.context import json_option
from sparewatt.cli.errors import CliError
from sparewatt.cli.gateway import gateway_data_dir, network_database
from sparewatt.cli.groups import examples

if TYPE_CHECKING:
    from sparewatt.gateway.backup import Manifest
    from sparewatt.store.ledger import AuditResult

_data_option = click.option(
    "--data", type=click.Path(path_type=Path), help="The gateway's data directory.  [env: SPAREWATT_GATEWAY_DATA]"
)
_database_option = click.option(
    "--database-url", metavar="URL", help="The network's Postgres, if not its own.  [env: DATABASE_URL]"
)


@click.command()
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@_data_option
@_database_option
@click.option("--config", type=click.Path(path_type=Path, exists=True), help="The settings file, to include it.")
@json_option
@examples(
    "sparewatt backup network.tar.gz --data /var/lib/sparewatt", "sparewatt backup - | age -r age1… > network.tar.age"
)
def backup(*, file: Path, data: Path | None, database_url: str | None, config: Path | None, as_json: bool) -> None:
    """Write keys, books and settings of a network into one file, while it runs. `-` writes to stdout.

    The file holds the network's secret: only you can read it, and it is not encrypted. Take it off the machine through
    a program that does that.
    """
    import asyncio

    from sparewatt.gateway.backup import new_file

    if str(file) == "-":
        manifest = asyncio.run(_write(sys.stdout.buffer, data, database_url, config, packed=False))
        _print_manifest(manifest, "Written")
        return
    with new_file(file.absolute()) as target:
        manifest = asyncio.run(_write(target, data, database_url, config, packed=file.suffix in {".gz", ".tgz"}))
    if as_json:
        output.print_json(describe(manifest) | {"file": str(file.absolute())})
    else:
        _print_manifest(manifest, str(file))


async def _write(
    target: BinaryIO, data: Path | None, database_url: str | None, config: Path | None, *, packed: bool
) -> Manifest:
    from sparewatt.core.clock import SystemClock
    from sparewatt.gateway.backup import write_backup

    os.umask(0o077)
    async with network_database(database_url=database_url, data=data) as dsn:
        return await write_backup(
            target,
            dsn=dsn,
            data=gateway_data_dir(data),
            config=config,
            secret=os.environ.get("SPAREWATT_SECRET") or None,
            packed=packed,
            clock=SystemClock(),
        )


@click.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, allow_dash=True))
@_data_option
@_database_option
@json_option
@examples(
    "sparewatt restore network.tar.gz --data /var/lib/sparewatt",
    "DATABASE_URL=postgresql://… sparewatt restore network.tar.gz",
)
def restore(*, file: Path, data: Path | None, database_url: str | None, as_json: bool) -> None:
    """Make a network from its backup: in an empty database, and a directory without its files.

    Nothing is overwritten. Stop the network that the backup is of before this one starts: two with the same keys
    would both answer to its nodes.
    """
    import asyncio

    if str(file) == "-":
        manifest, audit = asyncio.run(_read(sys.stdin.buffer, data, database_url))
    else:
        with file.open("rb") as source:
            manifest, audit = asyncio.run(_read(source, data, database_url))
    if as_json:
        output.print_json(describe(manifest) | {"books_in_order": audit.is_clean})
    else:
        _print_manifest(manifest, f"Restored. The books are {'in order' if audit.is_clean else 'NOT in order'}")
    if not audit.is_clean:
        raise CliError("The restored books are not in order.", next_step="Please report this; it is a bug.")


async def _read(source: BinaryIO, data: Path | None, database_url: str | None) -> tuple[Manifest, AuditResult]:
    from sparewatt.gateway.backup import restore_backup
    from sparewatt.machine.data_dir import make_private_dir

    os.umask(0o077)
    make_private_dir(gateway_data_dir(data))
    async with network_database(database_url=database_url, data=data, may_make=True) as dsn:
        return await restore_backup(source, dsn=dsn, data=gateway_data_dir(data))


def describe(manifest: Manifest) -> dict[str, object]:
    return {
        "made_at": manifest.made_at_unix_s,
        "program": manifest.program,
        "tables": len(manifest.shape.tables),
        "rows": sum(table.rows for table in manifest.shape.tables),
        "files": manifest.files(),
        "has_secret": any(Path(name).name == "secret" for name in manifest.files()),
        "bytes": sum(member.n_bytes for member in manifest.members),
    }


def _print_manifest(manifest: Manifest, what: str) -> None:
    summary = describe(manifest)
    output.note(f"{what}: {summary['rows']} rows of {summary['tables']} tables, {len(manifest.files())} files.")
    if not summary["has_secret"]:
        output.note(
            "The network's secret is not in it: it is given by SPAREWATT_SECRET. Keep that as well; without it the "
            "chain keys of accounts cannot be opened."
        )
