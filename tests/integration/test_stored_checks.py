"""Checks with a real Postgres and scripted nodes: verdicts, records, withheld money, re-trials and replays."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec
import pytest

from sparewatt.core.errors import RetrialRefused
from sparewatt.core.ids import AccountId, ModelId, NodeId
from sparewatt.core.money import Nano
from sparewatt.core.rng import seeded
from sparewatt.inference.checks.answers import ReadAnswer
from sparewatt.inference.checks.check_jobs import CheckRequest
from sparewatt.inference.checks.evidence import CheckEvidence, replay
from sparewatt.inference.checks.records import CheckRecords
from sparewatt.inference.checks.retrial import Retrials
from sparewatt.inference.checks.sampler import AnswerSampler
from sparewatt.inference.checks.service import AnswerChecks
from sparewatt.inference.checks.witnesses import Witnesses
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.ledger import chart
from sparewatt.ledger.withheld import WithheldEarnings
from sparewatt.postgres.server import EmbeddedPostgres
from sparewatt.store.database import Database
from sparewatt.store.ledger import Transfer
from sparewatt.testing.clocks import ManualClock
from sparewatt.trust.checks.standing import CheckState
from tests.integration.databases import fresh_database
from tests.unit.inference.nodes import MODEL, NOW_S, a_model, node_id, some_specs

RIGHT, WRONG = "the true answer of the model to this prompt", "something else that another model has written"
OWNERS = ("ada", "ben", "cleo", "dan", "eve")
NAME = ModelId(MODEL)


@dataclass
class ScriptedNodes:
    """Implements NodeAsker."""

    texts: dict[NodeId, str] = field(default_factory=dict)
    asked: list[NodeId] = field(default_factory=list)

    async def ask(self, node_id: NodeId, _: CheckRequest, /) -> ReadAnswer | None:
        self.asked.append(node_id)
        text = self.texts.get(node_id, RIGHT)
        return ReadAnswer(text, (), "stop") if text else None


@dataclass
class Stage:
    database: Database
    checks: AnswerChecks
    nodes: ScriptedNodes
    rows: Mapping[str, NodeRow]
    clock: ManualClock

    async def earn(self, name: str, paid: int, promo: int = 0) -> None:
        owner, node = AccountId(name), self.rows[name].id
        lines = [(chart.withheld_by(owner, node), paid), (chart.promo_withheld_by(owner, node), promo)]
        lines = [(account, nano) for account, nano in lines if nano]
        lines += [(chart.DEPOSITS, -paid)] if paid else []
        lines += [(chart.GRANTS, -promo)] if promo else []
        cause = f"test:{name}:{paid}:{promo}:{len(self.nodes.asked)}"
        await self.database.ledger.post_transfer(
            Transfer(cause, "test", owner, Nano(paid + promo), tuple(lines), self.clock.unix_s())
        )

    async def money(self, name: str) -> tuple[int, int, int]:
        """Withheld, payable, and promo income."""
        owner, node = AccountId(name), self.rows[name].id
        names = [chart.withheld_by(owner, node), chart.promo_withheld_by(owner, node)]
        names += [chart.earned_by(owner), chart.promo_earned_by(owner)]
        found = await self.database.ledger.balances(names)
        return found[names[0]] + found[names[1]], found[names[2]], found[names[3]]

    def state(self, name: str) -> CheckState:
        return self.checks.records.of(self.rows[name].id).state


@asynccontextmanager
async def staged(server: EmbeddedPostgres, *owners: str) -> AsyncIterator[Stage]:
    clock, rng, table, nodes = ManualClock(now_s=NOW_S), seeded(5), NodeTable(), ScriptedNodes()
    for number, owner in enumerate(owners, start=1):
        table.connect(node_id(number), some_specs(name=owner, models=(a_model(),)), now_s=NOW_S)
        table.set_owner(node_id(number), AccountId(owner))
    rows = {row.specs.name: row for row in table}
    async with fresh_database(server) as dsn:
        database = await Database.connect(dsn)
        records = CheckRecords()
        checks = AnswerChecks(
            sampler=AnswerSampler(records=records, table=table, clock=clock, rng=rng),
            records=records,
            witnesses=Witnesses(table, records, rng),
            jobs=nodes,
            table=table,
            verdicts=database.check_verdicts,
            counts=database.check_counts,
            withheld=WithheldEarnings(database.ledger, clock),
            fund=None,
            clock=clock,
            rng=rng,
        )
        yield Stage(database, checks, nodes, rows, clock)
        assert (await database.ledger.audit()).is_clean
        await database.close()


async def test_a_pass_makes_withheld_pay_payable(server: EmbeddedPostgres) -> None:
    async with staged(server, *OWNERS) as stage:
        await stage.earn("ada", 700, promo=40)
        assert await stage.money("ada") == (740, 0, 0)
        await stage.checks.probe(stage.rows["ada"], NAME)
        assert await stage.money("ada") == (0, 700, 40)
        assert stage.state("ada") is CheckState.PASSING


async def test_two_failures_forfeit_and_the_first_costs_nothing(server: EmbeddedPostgres) -> None:
    async with staged(server, *OWNERS) as stage:
        liar = stage.rows["ada"]
        stage.nodes.texts[liar.id] = WRONG
        await stage.earn("ada", 700, promo=40)
        await stage.checks.probe(liar, NAME)
        assert stage.state("ada") is CheckState.SUSPECT
        assert liar.is_suspended
        assert await stage.money("ada") == (740, 0, 0)
        await stage.checks.probe(liar, NAME)
        assert stage.state("ada") is CheckState.BARRED
        assert await stage.money("ada") == (0, 0, 0)
        found = await stage.database.ledger.balances([chart.FORFEITS, chart.GRANTS])
        assert (found[chart.FORFEITS], found[chart.GRANTS]) == (700, 0)


async def test_a_failure_needs_a_second_prompt(server: EmbeddedPostgres) -> None:
    class Wavering(ScriptedNodes):
        async def ask(self, node_id: NodeId, request: CheckRequest, /) -> ReadAnswer | None:
            answer = await super().ask(node_id, request)
            self.texts.pop(node_id, None)  # the second time it is right
            return answer

    async with staged(server, *OWNERS) as stage:
        nodes = Wavering({stage.rows["ada"].id: WRONG})
        stage.checks.jobs = nodes
        await stage.checks.probe(stage.rows["ada"], NAME)
        assert nodes.asked.count(stage.rows["ada"].id) == 2
        assert stage.state("ada") is CheckState.PASSING


async def test_every_verdict_replays_from_its_stored_evidence(server: EmbeddedPostgres) -> None:
    async with staged(server, *OWNERS) as stage:
        stage.nodes.texts[stage.rows["ada"].id] = WRONG
        await stage.checks.probe(stage.rows["ada"], NAME)
        for row in stage.rows.values():
            for stored in await stage.database.check_verdicts.list_of(row.id):
                evidence = msgspec.json.decode(stored.evidence, type=CheckEvidence)
                again = replay(evidence)
                assert again is not None
                (own,) = [verdict for verdict in again if verdict.node == row.id]
                assert own.result.value == stored.result
        (failed,) = await stage.database.check_verdicts.list_of(stage.rows["ada"].id)
        assert failed.result == "failed"


async def test_another_gateway_reads_the_record(server: EmbeddedPostgres) -> None:
    async with staged(server, *OWNERS) as stage:
        stage.nodes.texts[stage.rows["ada"].id] = WRONG
        await stage.checks.probe(stage.rows["ada"], NAME)
        elsewhere = CheckRecords()
        elsewhere.load(await stage.database.check_verdicts.records_since(elsewhere.version))
        assert elsewhere.of(stage.rows["ada"].id).state is CheckState.SUSPECT
        assert elsewhere.of(stage.rows["ada"].id) == stage.checks.records.of(stage.rows["ada"].id)


async def test_a_retrial_that_finds_for_the_node_gives_everything_back(server: EmbeddedPostgres) -> None:
    async with staged(server, *OWNERS) as stage:
        node = stage.rows["ada"]
        for other in ("ben", "cleo", "dan", "eve"):  # all but one are wrong, and agree
            stage.nodes.texts[stage.rows[other].id] = WRONG
        await stage.earn("ada", 700)
        await stage.checks.probe(node, NAME)
        await stage.checks.probe(node, NAME)
        assert stage.state("ada") is CheckState.BARRED
        verdict = (await stage.database.check_verdicts.list_of(node.id))[0]
        stage.nodes.texts.clear()  # the fourth, which was not heard, answers truly
        tried = await Retrials(stage.checks).hold(verdict, node)
        assert (tried.result, tried.retrial_of) == ("passed", verdict.id)
        assert stage.state("ada") is CheckState.PASSING
        assert not node.is_suspended
        assert await stage.money("ada") == (0, 700, 0)
        with pytest.raises(RetrialRefused):
            await Retrials(stage.checks).hold(verdict, node)


async def test_a_retrial_against_the_node_leaves_the_verdict(server: EmbeddedPostgres) -> None:
    async with staged(server, *OWNERS) as stage:
        liar = stage.rows["ada"]
        stage.nodes.texts[liar.id] = WRONG
        await stage.earn("ada", 700)
        await stage.checks.probe(liar, NAME)
        await stage.checks.probe(liar, NAME)
        verdict = (await stage.database.check_verdicts.list_of(liar.id))[0]
        tried = await Retrials(stage.checks).hold(verdict, liar)
        assert tried.result == "failed"
        assert stage.state("ada") is CheckState.BARRED
        assert await stage.money("ada") == (0, 0, 0)


async def test_a_retrial_that_nobody_can_decide_may_be_asked_for_again(server: EmbeddedPostgres) -> None:
    async with staged(server, *OWNERS[:4]) as stage:  # the whole network was on the panel
        liar = stage.rows["ada"]
        stage.nodes.texts[liar.id] = WRONG
        await stage.checks.probe(liar, NAME)
        (verdict,) = await stage.database.check_verdicts.list_of(liar.id)
        for _ in range(2):
            with pytest.raises(RetrialRefused, match="no part in it"):
                await Retrials(stage.checks).hold(verdict, liar)


async def test_pay_that_nobody_can_check_is_released_after_a_day(server: EmbeddedPostgres) -> None:
    async with staged(server, "ada") as stage:
        books = stage.database.ledger
        await stage.earn("ada", 700)
        assert await books.note_withheld(older_than_s=3600.0) == []  # noted for the first time
        (row,) = await books.note_withheld(older_than_s=0.0)
        assert (row.node_id, row.paid) == (stage.rows["ada"].id, 700)
        await stage.earn("ada", 50)
        (row,) = await books.withheld(owner=AccountId("ada"))
        assert row.paid == 750
        await stage.checks.release_overdue()
        assert (await stage.money("ada"))[0] == 750, "a day has not passed"


async def test_two_strangers_that_differ_pass_and_fail_nobody(server: EmbeddedPostgres) -> None:
    async with staged(server, "ada", "ben") as stage:
        stage.nodes.texts[stage.rows["ada"].id] = WRONG
        await stage.checks.probe(stage.rows["ada"], NAME)
        assert {stage.state(name) for name in ("ada", "ben")} == {CheckState.UNCHECKED}
