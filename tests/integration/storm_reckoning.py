"""After the storm: the books beside the model."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

from sparewatt.ledger import chart
from sparewatt.postgres.server import EmbeddedPostgres
from sparewatt.store.connection_pool import ConnectionPool
from tests.integration.databases import fresh_database
from tests.integration.storm import World
from tests.integration.storm_jobs import Ending


@dataclass(frozen=True, slots=True)
class Reckoning:
    """`wrong` holds what must not be, by kind; the rest is for a report."""

    wrong: dict[str, int]
    states: Counter[str]
    counts: Counter[str]


async def storm(server: EmbeddedPostgres, directory: Path, *, jobs: int, seed: int, arrivals: int = 8) -> Reckoning:
    """One whole run on a database of its own."""
    async with fresh_database(server) as dsn:
        pool = await ConnectionPool.connect(dsn)
        world = World(pool, directory, seed=seed, arrivals=arrivals)
        await world.run(jobs)
        reckoning = await reckon(world, pool)
        await pool.close()
    return reckoning


async def reckon(world: World, pool: ConnectionPool) -> Reckoning:
    """Compare the books with the model."""
    wrong: Counter[str] = Counter()
    rows = await pool._pool.fetch("SELECT id, account_id, state, cost_nano, promo_nano FROM jobs")
    found = Counter(row["id"] for row in rows)
    wrong["lost"] = len(world.jobs.keys() - found.keys())
    wrong["unknown"] = len(found.keys() - world.jobs.keys())
    wrong["in two states"] = sum(n > 1 for n in found.values())
    expected = defaultdict(int, world.given)
    for row in rows:
        job = world.jobs[row["id"]]
        wrong["wrong ending"] += Ending(row["state"], row["cost_nano"]) not in job.endings
        wrong["free credits not first"] += row["promo_nano"] != min(row["cost_nano"], job.tab.hold.amount.promo)
        expected[chart.promo_of(job.account)] -= row["promo_nano"]
        expected[chart.credits_of(job.account)] -= row["cost_nano"] - row["promo_nano"]
    wrong |= await _wrong_balances(world, pool, expected)
    wrong |= await _wrong_receipts(world, pool)
    states = Counter(row["state"] for row in rows)
    return Reckoning(dict(+wrong), states, world.counts)


async def _wrong_balances(world: World, pool: ConnectionPool, expected: dict[str, int]) -> Counter[str]:
    wrong: Counter[str] = Counter()
    names = [name(account) for account in world.accounts for name in (chart.promo_of, chart.credits_of)]
    balances = await world.books.balances(names)
    wrong["balances"] = sum(balances[name] != expected[name] for name in names)
    audit = await world.books.audit()
    for name in audit.__slots__:
        wrong[f"audit: {name}"] = abs(getattr(audit, name))
    paid = await pool._pool.fetch(
        "SELECT (SELECT coalesce(sum(nano), 0) FROM postings WHERE account LIKE '%earned:%'"
        " OR account LIKE 'network:fees%') - (SELECT coalesce(sum(cost_nano), 0) FROM jobs) AS off,"
        " (SELECT count(*) FROM slices) AS slices"
    )
    wrong["earned is not what was paid"] = abs(int(paid[0]["off"]))
    wrong["slices left"] = paid[0]["slices"]
    await world.books.rebuild_balances()
    wrong["balances after rebuilding"] = int(await world.books.balances(names) != balances)
    return wrong


async def _wrong_receipts(world: World, pool: ConnectionPool) -> Counter[str]:
    """Those that a gateway took with it when it died are missing, and no others than honest ones are there."""
    wrong: Counter[str] = Counter()
    rows = await pool._pool.fetch("SELECT job_id, node_id, disputed FROM receipts")
    kept = {(row["job_id"], row["node_id"]): row["disputed"] for row in rows}
    wrong["receipts kept twice"] = len(rows) - len(kept)
    wrong["receipts of nobody"] = len(kept.keys() - world.honest)
    wrong["disputes"] = sum(disputed != (which in world.swollen) for which, disputed in kept.items())
    wrong["countersigned but not kept"] = max(0, len(world.confirmed) - len(kept))
    world.counts["receipts kept"] = len(kept)
    world.counts["receipts of nodes"] = len(world.honest)
    return wrong
