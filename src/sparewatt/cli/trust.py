"""`sparewatt trust`: compute again, here, what a network says of its nodes and rewards, or have it tried again."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import click

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient, path_of
from sparewatt.cli.context import json_option, network_options
from sparewatt.cli.groups import examples
from sparewatt.cli.output import Column, right
from sparewatt.cli.verdicts import replay_verdict
from sparewatt.protocol.api.checks import CheckVerdict

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
@examples(
    "sparewatt trust replay verdict_5k0wq2", "sparewatt trust replay 12", "sparewatt trust sybil --identities 100"
)
def trust() -> None:
    """Check, here, what the network says about trust and rewards."""


@trust.command("replay")
@click.argument("what", metavar="VERDICT|ERA")
@network_options
@examples("sparewatt trust replay verdict_5k0wq2", "sparewatt trust replay 12")
def replay(client: ApiClient, *, what: str, as_json: bool) -> None:
    """Compute a verdict, or an era's rewards and their Merkle root, again from published inputs, and compare."""
    if what.isdecimal():
        from sparewatt.cli.money.era_replay import replay_era_of

        replay_era_of(client, int(what), as_json=as_json)
    else:
        replay_verdict(client, what, as_json=as_json)


@trust.command("retry")
@click.argument("verdict")
@network_options
@examples("sparewatt trust retry verdict_5k0wq2")
def retry(client: ApiClient, *, verdict: str, as_json: bool) -> None:
    """Have a failed check of your node decided by a node that had no part in it. Once for each verdict."""

    def show(found: CheckVerdict) -> None:
        words = "The node was right: the verdict is undone." if found.result == "passed" else "The verdict stands."
        output.print_lines([f"{words} ({found.id})"])

    client.post(path_of("verdicts", verdict, "retrial"), {}).show(CheckVerdict, show, as_json=as_json)


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
