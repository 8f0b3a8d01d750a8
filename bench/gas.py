"""Gas of every step of a lease, as a transaction would be charged, on the EVM of the tests (Prague rules).

`make gas` writes docs/measurements/gas.md. Each step is its own transaction: 21,000 and calldata at the start (with the
floor of EIP-7623), cold storage, refunds of at most a fifth.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boa

from sparewatt.protocol.contracts.match import Down
from sparewatt.protocol.contracts.payouts import PayoutEntry, settlement_tree
from tests.evm.auction import RENTER, Order, place_order
from tests.evm.machine import Contract, boa_address, now, wait
from tests.evm.network import OPERATOR, ROOT_DELAY_S, USD, Network, full_network, key
from tests.order_terms import order_terms

GOAL = 1_000_000
LIFE = ("create_order", "accept_match, 7 votes, 3 candidates", "confirm_start", "close")


@dataclass
class Meter:
    rows: dict[str, int] = field(default_factory=dict)

    def charge(self, label: str, contract: Contract, function: str, *arguments: Any, who: str) -> None:
        evm = boa.env.evm
        evm.vm.state.lock_changes()  # earlier calls were other transactions: resets the original values of storage
        evm.reset_access_counters()
        data = contract.functions[function].data(arguments)
        done = boa.env.execute_code(to_address=boa_address(contract.address), sender=boa_address(who), data=data)
        assert not done.is_error, f"{label} failed"
        self.rows[label] = charged(data, used=done.get_gas_used(), refund=done.get_gas_refund())


def charged(data: bytes, *, used: int, refund: int) -> int:
    zeros = data.count(0)
    tokens = zeros + 4 * (len(data) - zeros)
    before_refund = 21_000 + 4 * tokens + used
    return max(before_refund - min(refund, before_refund // 5), 21_000 + 10 * tokens)


def life_of_a_lease(network: Network, meter: Meter) -> Order:
    network.fund(RENTER.address)
    policy = order_terms(payment_rule=1)
    renter = RENTER.address
    nonce_used = place_order(network, payment_rule=1)  # a renter's first order also pays for its nonce's storage slot
    assert nonce_used.state
    order_id = network.orders.functions["create_order"]
    arguments = (policy.values(), b"\3" * 32, 10 * USD, now() + 86_400, 2)
    expected = order_id.answer(preview(network.orders, order_id.data(arguments), renter))
    meter.charge("create_order", network.orders, "create_order", *arguments, who=renter)
    order = Order(network, expected, policy, RENTER, stake_version=network.stakes.version())
    book = order.book({0: 2 * USD, 1: USD, 2: 3 * USD, 3: 3 * USD, 4: 3 * USD})
    meter.charge(LIFE[1], network.tasks, "accept_match", *order.certificate(book), who=renter)
    node = order.provider.node_key.address
    meter.charge("confirm_start", network.orders, "confirm_start", expected, b"\5" * 32, who=node)
    wait(3600)
    meter.charge("close", network.orders, "close", expected, 1, who=renter)
    provider = order.lease["provider"]
    meter.charge("withdraw", network.escrow, "withdraw", provider, who=provider)
    return order


def preview(contract: Contract, data: bytes, who: str) -> bytes:
    """The result of the call, without its effects."""
    with boa.env.anchor():
        return contract.raw(data, who=who)


def other_steps(network: Network, meter: Meter) -> None:
    renter = RENTER.address
    order = place_order(network)
    book = order.match({0: 2 * USD, 1: USD, 2: 3 * USD})
    node = order.provider.node_key.address
    network.orders.confirm_start(order.order_id, bytes(32), who=node)
    wait(100)
    meter.charge("settle", network.escrow, "settle", order.order_id, who=renter)
    meter.charge("pause", network.orders, "pause", order.order_id, who=renter)
    meter.charge("resume", network.orders, "resume", order.order_id, who=renter)
    network.orders.confirm_start(order.order_id, bytes(32), who=node)
    change = (order.order_id, b"\6" * 32, USD, 3600, 1)
    meter.charge("propose_update", network.moves, "propose_update", *change, who=renter)
    meter.charge("accept_update", network.moves, "accept_update", *change, who=node)
    meter.charge("top_up", network.escrow, "top_up", order.order_id, USD, who=renter)
    lease = order.lease
    since = now()
    wait(10)
    votes = network.votes(Down(order.order_id, lease["term"], lease["provider"], since))
    shown = (order.order_id, order.record(book).values(), 17, since, votes, bytes(65))
    meter.charge("hand_over, DOWN, 7 votes", network.moves, "hand_over", *shown, who=renter)
    standin = order.record(book).chosen[1].provider
    claim = (order.order_id, order.record(book).values(), 1, bytes(65))
    meter.charge("take_over", network.moves, "take_over", *claim, who=standin)
    losing = place_order(network)
    task = losing.task(losing.book({}))
    meter.charge(
        "accept_no_match, 7 votes", network.tasks, "accept_no_match", task.values(), 0, losing.votes(task), who=renter
    )
    meter.charge("cancel_order", network.orders, "cancel_order", losing.order_id, who=renter)


def settlement_steps(network: Network, meter: Meter) -> None:
    people = sorted((key(n).address for n in range(500, 564)), key=lambda a: int(a, 16))
    renter = RENTER.address
    meter.charge("settlement deposit", network.settlement, "deposit", renter, 64 * USD, who=renter)
    entries = [PayoutEntry(person, USD, 0) for person in people]
    tree = settlement_tree(entries)
    post = (0, 1, tree.root, 64, 64 * USD)
    meter.charge("settlement post_root", network.settlement, "post_root", *post, who=OPERATOR)
    wait(ROOT_DELAY_S)
    claim = (0, 1, entries[5].values(), 5, tree.path(5))
    meter.charge("settlement claim, 64 accounts", network.settlement, "claim", *claim, who=renter)


def dispute_steps(network: Network, meter: Meter) -> None:
    order = place_order(network)
    book = order.match({0: 2 * USD, 1: USD, 2: 3 * USD, 3: 3 * USD, 4: 3 * USD})
    network.fund(OPERATOR)
    meter.charge("demand_book", network.book, "demand_book", order.order_id, 0, who=OPERATOR)
    shown = (order.task(book).values(), order.record(book).values(), [leaf.values() for leaf in book.leaves])
    meter.charge("publish_book, 5 bids", network.book, "publish_book", *shown, who=OPERATOR)


def report(meter: Meter) -> str:
    total = sum(meter.rows[label] for label in LIFE)
    lines = [
        "# Gas",
        "",
        "Made by `make gas`: the compiled contracts of the package, Prague rules, seven validators of equal stake,",
        "five bids. Each figure is what a transaction is charged: base, calldata, cold storage, refunds.",
        "",
        "| the life of a lease | gas |",
        "| --- | ---: |",
        *[f"| {label} | {meter.rows[label]:,} |" for label in LIFE],
        f"| **together** (goal {GOAL:,}) | **{total:,}** |",
        "| a losing bid | 0 |",
        "",
        "| other steps | gas |",
        "| --- | ---: |",
        *[f"| {label} | {gas:,} |" for label, gas in meter.rows.items() if label not in LIFE],
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", type=Path, default=Path("docs/measurements/gas.md"))
    arguments = parser.parse_args()
    meter = Meter()
    network = full_network()
    life_of_a_lease(network, meter)
    other_steps(network, meter)
    settlement_steps(network, meter)
    dispute_steps(network, meter)
    arguments.report.write_text(report(meter))
    print(report(meter))
    return 0 if sum(meter.rows[label] for label in LIFE) <= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
