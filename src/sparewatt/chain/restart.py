"""A new release does not strand a network: where money is test money, its chain is started over with new contracts.

The chain itself goes on. A deployer with a new key deploys this release's contracts at new addresses, and the network
leaves the old ones: index, outbox, requests and payout batches are dropped, and what accounts had in the contracts
returns to their credits. Elsewhere nothing is touched: contracts with real money are for a person to leave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from sparewatt.chain.contracts import RECORD_FILE, find_record, outdated_contracts, shipped_artifacts
from sparewatt.chain.signer import DEPLOYER_KEY
from sparewatt.core.log import Logger
from sparewatt.ledger.chain_restart import restart_transfers
from sparewatt.store.database import Database

_log = Logger("sparewatt.chain")
Checkpoint = Callable[[str], None]


async def start_over_if_outdated(
    database: Database, folder: Path, *, wanted: Iterable[str], checkpoint: Checkpoint = lambda _: None
) -> bool:
    """Leave a deployment of another release. Whatever interrupts it, the next call goes on: False if all is current.

    `wanted`: what the plan of this release creates. `checkpoint`: called after each step, for tests.
    """
    record = find_record(folder)
    if record is None or not (names := outdated_contracts(record, shipped_artifacts(), wanted=wanted)):
        return False
    abandoned = min(record.addresses.values())
    await database.chain_restarts.start_over(abandoned, restart_transfers)
    checkpoint("books")
    for name in (DEPLOYER_KEY, RECORD_FILE):  # the record last: as long as it is there, this is done again
        _set_aside(folder / name, abandoned)
        checkpoint(name)
    _log.warning("chain_started_over", abandoned=abandoned, contracts=names)
    return True


def _set_aside(path: Path, abandoned: str) -> None:
    """Kept, because a key is never thrown away."""
    if path.exists():
        path.replace(path.with_name(f"{path.stem}-{abandoned[2:10]}{path.suffix}"))
