"""Statements in a real Postgres: their sums are the sums of the books, whatever they are grouped by."""

from __future__ import annotations

from random import Random

import pytest

from sparewatt.api.money.statements import cursor_of
from sparewatt.core.ids import AccountId, KeyId, MatchId
from sparewatt.ledger import chart
from sparewatt.ledger.model import ClosedJob, JobState
from sparewatt.store.database import Database
from sparewatt.store.statements import EarningLine, JobLine, StatementCursor, TimeRange, UsageBy
from tests.integration.money.samples import ANN, BEN, NODE, NOON_S, OLE, OTHER_NODE, delivery, job, settle

ALL = TimeRange(NOON_S - 40 * 86_400, NOON_S + 40 * 86_400)


def some_jobs(count: int, *, seed: int) -> list[ClosedJob]:
    """Of all kinds: free and paid, whole and shared, failed and empty."""
    chance = Random(seed)  # noqa: S311 (repeatable chance)
    found = []
    for number in range(count):
        parts = [
            delivery(
                chance.choice([BEN, OLE]),
                prompt=chance.randrange(500),
                written=chance.randrange(1, 900),
                node_id=chance.choice([NODE, OTHER_NODE]),
                duration_ms=chance.uniform(1, 5_000),
            )
            for _ in range(chance.choice([0, 1, 1, 1, 2, 3]))
        ]
        found.append(
            job(
                f"{seed}_{number}",
                *parts,
                promo=chance.randrange(40_000),
                paid=chance.randrange(60_000),
                account=chance.choice([ANN, AccountId("acc_zoe")]),
                key=chance.choice(["key_a", "key_b"]),
                model=chance.choice(["small", "large"]),
                at=NOON_S + chance.randrange(-20, 20) * 43_211.5,
                state=JobState.DONE if parts else JobState.FAILED,
            )
        )
    return found


@pytest.mark.parametrize("seed", range(3))
async def test_the_sums_of_statements_are_those_of_the_books(database: Database, seed: int) -> None:
    await settle(database, *some_jobs(300, seed=seed))
    statements, books = database.statements, database.ledger
    for account in (ANN, AccountId("acc_zoe")):
        held = await books.balances([chart.promo_of(account), chart.credits_of(account)])
        jobs = await statements.jobs(account, span=ALL, key_id=None, after=None, limit=1000)
        assert sum(line.cost_nano for line in jobs) == -sum(held.values())
        assert sum(line.promo_nano for line in jobs) == -held[chart.promo_of(account)]
        for by in ("day", "model", "key"):
            await _usage_agrees(database, account, by, jobs)
    for owner in (BEN, OLE):
        lines = await statements.earnings(owner, span=ALL, node_id=None, after=None, limit=1000)
        held = await books.balances([chart.earned_by(owner), chart.promo_earned_by(owner)])
        assert sum(line.net_nano for line in lines) == held[chart.earned_by(owner)]
        assert sum(line.net_promo_nano for line in lines) == held[chart.promo_earned_by(owner)]
        await _earnings_agree(database, owner, lines)
    await _fees_agree(database)


async def _usage_agrees(database: Database, account: AccountId, by: UsageBy, jobs: list[JobLine]) -> None:
    rows = await database.statements.usage(account, by=by, span=ALL, key_id=None, after="", limit=1000)
    assert sum(row.jobs for row in rows) == len(jobs)
    assert sum(row.cost_nano for row in rows) == sum(line.cost_nano for line in jobs)
    assert sum(row.completion_tokens for row in rows) == sum(line.completion_tokens for line in jobs)


async def _earnings_agree(database: Database, owner: AccountId, lines: list[EarningLine]) -> None:
    for by in ("day", "model", "node"):
        sums = await database.statements.earnings_by(
            owner,
            by="day" if by == "day" else "model" if by == "model" else "node",
            span=ALL,
            node_id=None,
            after="",
            limit=1000,
        )
        assert sum(row.net_nano for row in sums) == sum(line.net_nano for line in lines)
        assert sum(row.fee_nano for row in sums) == sum(line.fee_nano for line in lines)


async def _fees_agree(database: Database) -> None:
    lines = [
        line
        for owner in (BEN, OLE)
        for line in await database.statements.earnings(owner, span=ALL, node_id=None, after=None, limit=1000)
    ]
    held = await database.ledger.balances([chart.FEES, chart.FEES_PROMO])
    assert sum(line.fee_nano for line in lines) == sum(held.values())


async def test_pages_follow_each_other_without_gap_or_overlap(database: Database) -> None:
    await settle(database, *some_jobs(60, seed=9))
    whole = await database.statements.earnings(BEN, span=ALL, node_id=None, after=None, limit=1000)
    paged: list[EarningLine] = []
    after: StatementCursor | None = None
    while found := await database.statements.earnings(BEN, span=ALL, node_id=None, after=after, limit=7):
        paged += found
        after = _cursor(cursor_of(found[-1].opened_at, found[-1].job_id, found[-1].position))
    assert paged == whole
    assert len(whole) > 20


def _cursor(text: str) -> StatementCursor:
    micro, job_id, position = text.split(".")
    return StatementCursor(int(micro) / 1e6, job_id, int(position))


async def test_pages_of_jobs_and_groups_follow_each_other_too(database: Database) -> None:
    await settle(database, *some_jobs(60, seed=10))
    statements = database.statements
    whole = await statements.jobs(ANN, span=ALL, key_id=None, after=None, limit=1000)
    first = await statements.jobs(ANN, span=ALL, key_id=None, after=None, limit=10)
    after = _cursor(cursor_of(first[-1].opened_at, first[-1].id))
    assert first + await statements.jobs(ANN, span=ALL, key_id=None, after=after, limit=1000) == whole
    days = await statements.usage(ANN, by="day", span=ALL, key_id=None, after="", limit=1000)
    assert await statements.usage(ANN, by="day", span=ALL, key_id=None, after=days[2].name, limit=2) == days[3:5]


async def test_a_span_and_a_key_narrow_a_statement(database: Database) -> None:
    await settle(
        database,
        job("1", delivery(), paid=100_000, key="key_a", at=NOON_S),
        job("2", delivery(), paid=100_000, key="key_b", at=NOON_S + 86_400),
    )
    day = TimeRange(NOON_S - 43_200, NOON_S + 43_200)
    (line,) = await database.statements.usage(ANN, by="day", span=day, key_id=None, after="", limit=10)
    assert (line.name, line.jobs) == ("2023-11-15", 1)
    (line,) = await database.statements.usage(ANN, by="key", span=ALL, key_id=KeyId("key_b"), after="", limit=10)
    assert (line.name, line.cost_nano) == ("key_b", 10_000)
    assert await database.statements.usage(OLE, by="day", span=ALL, key_id=None, after="", limit=10) == []


async def test_one_job_comes_with_its_attempts(database: Database) -> None:
    await settle(database, job("1", delivery(BEN), delivery(OLE, node_id=OTHER_NODE, written=50), paid=100_000))
    found = await database.statements.find_job(MatchId("match_1"))
    assert found is not None
    line, attempts = found
    assert [attempt.node_id for attempt in attempts] == [NODE, OTHER_NODE]
    assert line.cost_nano == sum(attempt.net_nano + attempt.fee_nano for attempt in attempts)
    assert await database.statements.find_job(MatchId("match_2")) is None


async def test_time_is_counted_once_however_many_jobs_ran_side_by_side(database: Database) -> None:
    await settle(
        database,
        job("1", delivery(duration_ms=2_000), paid=100_000, at=NOON_S),
        job("2", delivery(duration_ms=2_000), paid=100_000, at=NOON_S + 1),
        job("3", delivery(duration_ms=500), paid=100_000, at=NOON_S + 10),
        job("4", delivery(OLE, duration_ms=1_000), delivery(duration_ms=1_000), paid=100_000, at=NOON_S + 20),
        job("5", delivery(duration_ms=500), paid=100_000, at=NOON_S + 20),
    )
    (busy,) = await database.statements.busy_times(BEN, span=ALL, limit=10)
    assert busy.work_s == pytest.approx(6.0)
    assert busy.busy_s == pytest.approx(3.0 + 0.5 + 1.0 + 0.5)  # in job 4 the node began when the first had ended
    assert busy.first_at.timestamp() == NOON_S
