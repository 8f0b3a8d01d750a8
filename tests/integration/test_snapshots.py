"""A database copied table by table into an empty one: months, triggers, sequences and odd text included."""

from __future__ import annotations

from pathlib import Path

import asyncpg
import pytest

from sparewatt.core.errors import StartupError
from sparewatt.core.ids import NETWORK_ACCOUNT, KeyId
from sparewatt.core.money import Nano
from sparewatt.ledger.rules import deposit_postings
from sparewatt.postgres.server import EmbeddedPostgres
from sparewatt.store.database import Database, KeyTerms
from sparewatt.store.ledger import Transfer
from sparewatt.store.snapshot import SnapshotSchema, open_snapshot, restore_snapshot
from tests.integration.databases import empty_database, fresh_database

KEY = KeyId("key_a")
MONTHS_UNIX_S = (1_700_000_000.0, 1_760_000_000.0, 1_790_000_000.0)
ODD = "tab\t newline\n backslash \\. quote ' unicode 🙂 \\N"


async def put_something_in(dsn: str) -> None:
    database = await Database.connect(dsn)
    try:
        for at in MONTHS_UNIX_S:
            money = Nano(1_000_000)
            await database.ledger.post_transfer(
                Transfer(
                    f"test:{at}", "deposit", NETWORK_ACCOUNT, money, tuple(deposit_postings(NETWORK_ACCOUNT, money)), at
                )
            )
    finally:
        await database.close()
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("UPDATE accounts SET name = $1", ODD)
        await connection.execute("SELECT nextval('api_key_version') FROM generate_series(1, 41)")
        for epoch in (1, 2):
            await connection.execute(
                "INSERT INTO payout_batches VALUES ($1, now(), $2, 1, 0, 0)", epoch, bytes(range(32))
            )
        for epoch, earned in ((2, 7), (1, 5)):  # stored in an order in which the trigger would have to think
            await connection.execute(
                "INSERT INTO payout_leaves VALUES ($1, $2, 'acc_network', $3, 0, 0)", "0x" + "a" * 40, epoch, earned
            )
    finally:
        await connection.close()


async def copied(dsn: str, folder: Path) -> SnapshotSchema:
    folder.mkdir()  # noqa: ASYNC240 (a test)
    async with open_snapshot(dsn) as snapshot:
        shape = await snapshot.read_schema()
        tables = [await snapshot.copy_out(table, folder / table.name) for table in shape.tables]
    return SnapshotSchema(shape.migrations, tables, shape.partitions, shape.sequences)


async def refuse_change(dsn: str) -> None:
    """What watches over the books is awake again."""
    connection = await asyncpg.connect(dsn)
    with pytest.raises(asyncpg.RaiseError, match="append-only"):
        await connection.execute("DELETE FROM postings")
    await connection.execute("INSERT INTO payout_batches VALUES (3, now(), $1, 1, 0, 0)", bytes(32))
    with pytest.raises(asyncpg.RaiseError, match="lowered"):
        await connection.execute("INSERT INTO payout_leaves VALUES ($1, 3, 'a', 0, 0, 0)", "0x" + "a" * 40)
    await connection.close()


async def test_a_copy_is_what_it_is_a_copy_of(server: EmbeddedPostgres, tmp_path: Path) -> None:
    async with fresh_database(server) as source:
        await put_something_in(source)
        shape = await copied(source, tmp_path / "one")
    target = await empty_database(server, "target")
    await restore_snapshot(target, shape, lambda name: tmp_path / "one" / name, lambda: None)
    again = await copied(target, tmp_path / "two")
    assert again == shape
    assert shape.sequences["api_key_version"] >= 41
    for table in shape.tables:
        rows = [(tmp_path / side / table.name).read_text().splitlines() for side in ("one", "two")]
        assert sorted(rows[0]) == sorted(rows[1]), table.name
    await refuse_change(target)
    with pytest.raises(StartupError, match="not empty"):
        await restore_snapshot(target, shape, lambda name: tmp_path / "one" / name, lambda: None)


async def test_what_is_kept_for_an_hour_is_in_no_copy(server: EmbeddedPostgres, tmp_path: Path) -> None:
    async with fresh_database(server) as source:
        database = await Database.connect(source)
        terms, hashed = KeyTerms(name="k"), bytes(32)
        await database.insert_key(
            key_id=KEY, account_id=NETWORK_ACCOUNT, hashed=hashed, prefix="sk", scopes=["inference"], terms=terms
        )
        await database.responses.insert("resp_day", key_id=KEY, previous_id=None, sealed=b"of a day")
        await database.responses.insert_transient("resp_hour", key_id=KEY, previous_id=None, sealed=b"of an hour")
        await database.close()
        shape = await copied(source, tmp_path / "one")
    assert {"responses", "transient_responses"} & {table.name for table in shape.tables} == {"responses"}
    written = b"".join(file.read_bytes() for file in (tmp_path / "one").iterdir())
    assert b"of a day".hex().encode() in written
    assert b"of an hour".hex().encode() not in written


async def test_what_cannot_be_filled_stays_empty(server: EmbeddedPostgres, tmp_path: Path) -> None:
    async with fresh_database(server) as source:
        await put_something_in(source)
        shape = await copied(source, tmp_path / "one")
    (tmp_path / "one" / "postings").write_text("nonsense\n")
    target = await empty_database(server, "other")
    with pytest.raises(StartupError, match="cannot be put"):
        await restore_snapshot(target, shape, lambda name: tmp_path / "one" / name, lambda: None)
    connection = await asyncpg.connect(target)
    found = await connection.fetchval("SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace")
    assert found == 0
    await connection.close()
