"""Fleets of nodes that differ in what a policy looks at, and who of them may serve, worked out the slow way."""

from __future__ import annotations

from collections.abc import Sequence

from sparewatt.core.ids import AccountId, NodeId
from sparewatt.inference.matcher.model import AllowedNodes, Decision
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.inference.verdicts import facts_with
from sparewatt.policy.check import compile_policy
from sparewatt.policy.model import Policy
from tests.unit.inference.nodes import MODEL, NOW_S, a_model, make_timed, node_id, some_specs

REGIONS = ("de", "us", "eu-west", "somewhere", "jp")
CARDS = ("RTX 4090", "NVIDIA H100 80GB HBM3", "cpu")
OWNERS = ("acc_ann", "acc_bob", None)


def a_fleet(numbers: Sequence[int], *, others: int = 0) -> NodeTable:
    """Node n is the same in every fleet, whoever else is in it. `others` have another model."""
    table = NodeTable()
    for number in numbers:
        add_node(table, number)
    for number in range(others):
        table.connect(node_id(10**6 + number), some_specs(a_model(id="another")), now_s=NOW_S)
    return table


def add_node(table: NodeTable, number: int) -> None:
    price = 10_000_000 * (1 + number % 7)
    model = a_model(
        prompt_price_nano=price,
        completion_price_nano=3 * price,
        quantization=("fp16", "q4_k_m", None)[number % 3],
        state=("warm", "on_disk")[number % 2],
        measured=None if number % 13 == 12 else a_model().measured,
    )
    specs = some_specs(
        model, name=f"node-{number}", region=REGIONS[number % len(REGIONS)], gpu=CARDS[number % 3], slots=1 + number % 3
    )
    table.connect(node_id(number), specs, now_s=NOW_S - (100 if number % 11 == 10 else 0))
    owner = OWNERS[number % len(OWNERS)]
    if owner is not None:
        table.set_owner(node_id(number), AccountId(owner))
    make_timed(table, node_id(number))


def refusals(table: NodeTable, policy: Policy) -> dict[NodeId, str | None]:
    """For each node of the model the field that rules it out."""
    rows = [row for row in table if MODEL in row.models]
    return {row.id: compile_policy(policy).first_mismatch(facts_with(row, row.models[MODEL])) for row in rows}


def allowed_by(table: NodeTable, policy: Policy) -> AllowedNodes:
    """Without places: the matcher finds them itself."""
    found = refusals(table, policy)
    fields = [field for field in found.values() if field is not None]
    return AllowedNodes(
        frozenset(name for name, field in found.items() if field is None),
        {field: fields.count(field) for field in fields},
    )


def assert_adds_up(decision: Decision, *, kept: int) -> None:
    """What was dropped and what is left are all there are; `kept` candidates are told of at most."""
    counts = [*decision.rejected_by_reason.values(), *decision.rejected_by_policy.values()]
    assert all(count >= 0 for count in counts)
    left = decision.total - sum(counts)
    assert left >= 0
    assert len(decision.ranked) == min(left, kept)
