"""An era's rewards computed again on this machine from what a network has published, and compared."""

from __future__ import annotations

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient, path_of
from sparewatt.cli.errors import CliError
from sparewatt.cli.money.payouts import fetch_batch
from sparewatt.protocol.api.rewards import EraReply


def replay_era_of(client: ApiClient, era: int, *, as_json: bool) -> None:
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
