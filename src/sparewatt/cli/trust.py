"""`sparewatt trust`: compute again, on this machine, what a network has published about trust and rewards."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import click

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient, path_of
from sparewatt.cli.context import json_option, network_options
from sparewatt.cli.errors import CliError
from sparewatt.cli.groups import examples
from sparewatt.cli.money.payouts import fetch_batch
from sparewatt.cli.output import Column, right
from sparewatt.protocol.api.rewards import EraReply

SHARES = (1.0, 0.75, 0.5, 0.25, 0.1)
HONEST_PASSES = 3


@dataclass(frozen=True, slots=True)
class SybilRow:
    garbage_share: float
    caught: int
    garbage_paid_micro: int
    forfeited_micro: int
    gain_micro: int


@click.group()
@examples("sparewatt trust replay 12", "sparewatt trust sybil --identities 100")
def trust() -> None:
    """Check, here, what the network says about trust and rewards."""


@trust.command("replay")
@click.argument("era", type=click.IntRange(1))
@network_options
@examples("sparewatt trust replay 12")
def replay(client: ApiClient, *, era: int, as_json: bool) -> None:
    """Compute an era's rewards and their Merkle root from its published inputs, and compare."""
    from sparewatt.protocol.contracts.payouts import PayoutEntry
    from sparewatt.trust.rewards.replay import replay_era

    published = client.get(path_of("rewards", "eras", str(era))).parse(EraReply)
    before = []
    if published.epoch is not None and published.epoch > 1:
        _, leaves = fetch_batch(client, published.epoch - 1, pool="rewards")
        before = [PayoutEntry(leaf.address, leaf.earned_micro, leaf.spent_micro) for leaf in leaves]
    result = replay_era(published.inputs, before)
    root = None if result.root is None else "0x" + result.root.hex()
    inputs_hash = "0x" + result.inputs_hash.hex()
    differences = [
        name
        for name, is_same in (
            ("inputs", inputs_hash == published.inputs_hash),
            ("amounts", result.rewards == published.rewards),
            ("root", root == published.root),
        )
        if not is_same
    ]
    if as_json:
        found = {"era": era, "inputs_hash": inputs_hash, "root": root, "published_root": published.root}
        output.print_json({**found, "differences": differences, "verified": not differences})
    elif not differences:
        output.print_lines([f"Era {era} holds: its inputs {inputs_hash} give the root {root or '(none)'}."])
    if differences:
        raise CliError(
            f"Era {era} does not hold: {', '.join(differences)} differ. Computed here: {root}, published: "
            f"{published.root}.",
            next_step="Keep this output: it is evidence against the operator.",
        )


@trust.command("sybil")
@click.option("--identities", type=click.IntRange(1, 10_000), default=100, show_default=True)
@click.option(
    "--second-checks", type=click.IntRange(1, 1_000), default=1, show_default=True, help="After a failed one."
)
@click.option("--seed", type=int, default=1, show_default=True)
@json_option
@examples("sparewatt trust sybil --identities 100", "sparewatt trust sybil --second-checks 8")
def sybil(*, identities: int, second_checks: int, seed: int, as_json: bool) -> None:
    """Simulate an owner who cheats under many identities, by the share of answers that are garbage."""
    from sparewatt.core.rng import seeded
    from sparewatt.sim.sybil import SybilSetting, simulate_sybil

    rows = []
    for share in SHARES:
        setting = SybilSetting(
            identities=identities, garbage_share=share, honest_passes=HONEST_PASSES, second_checks=second_checks
        )
        found = simulate_sybil(setting, seeded(seed))
        rows.append(SybilRow(share, found.caught, found.garbage_paid_micro, found.forfeited_micro, found.gain_micro))
    if as_json:
        output.print_json([asdict(row) for row in rows])
        return
    columns: list[Column[SybilRow]] = [
        right("GARBAGE", lambda row: f"{row.garbage_share:.0%}"),
        right("CAUGHT", lambda row: str(row.caught)),
        right("PAID FOR GARBAGE", lambda row: _dollars(row.garbage_paid_micro)),
        right("FORFEITED", lambda row: _dollars(row.forfeited_micro)),
        right("GAIN", lambda row: _dollars(row.gain_micro)),
    ]
    output.print_table(columns, rows)
    output.note(
        f"{identities} identities, each honest until {HONEST_PASSES} checks were passed, $0.0001 a job; half of the "
        "jobs checked until then and 0.5 % after, 2 % of garbage missed."
    )


def _dollars(micro: int) -> str:
    return f"${micro / 10**6:,.2f}"
