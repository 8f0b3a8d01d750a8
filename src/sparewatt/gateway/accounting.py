"""The gateway's side of the books: its write-ahead log (journal), and the logs that dead gateways left on this machine.

A gateway that starts takes a new name and a new journal. Every journal whose gateway is gone is settled first, by the
next one that starts: nothing depends on the same process coming back.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sparewatt.core.clock import Clock
from sparewatt.core.errors import StartupError, UnbalancedEntry
from sparewatt.core.ids import AccountId, KeyId, NodeId, new_id
from sparewatt.core.log import Logger
from sparewatt.core.rng import Rng
from sparewatt.inference.metering.receipt_intake import ReceiptIntake
from sparewatt.inference.metering.service import Metering
from sparewatt.ledger.budgets import KeyBudgets
from sparewatt.ledger.journal import Journal, read_journal, unsettled_jobs
from sparewatt.ledger.ledger import Ledger
from sparewatt.machine.data_dir import DataDir, make_private_dir, write_private
from sparewatt.protocol.link.receipts import Countersignature
from sparewatt.protocol.signing import SigningKey
from sparewatt.store.ledger import LedgerStore

_log = Logger("sparewatt.gateway")
JOURNALS = "journals"
NEW = "."
"""How the name of a directory begins that nobody holds yet."""
KEY_FILE = "gateway.key"


@dataclass(slots=True)
class Accounting:
    """What is open as long as the gateway runs."""

    directory: DataDir
    journal: Journal
    ledger: Ledger
    metering: Metering

    async def close(self) -> None:
        """Post what is left. What cannot be posted, or still runs, stays in the journal for whoever starts next."""
        if not await self.ledger.close_down():
            self.journal.flush()
            return
        self.journal.close()
        path = self.directory.path
        self.directory.close()
        await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)


class PeerCredits(NamedTuple):
    """What the books need of the other processes of this gateway."""

    call_in: Callable[[AccountId], Awaitable[bool]]
    """Have them return credits that they do not need; whether any did."""
    pending: Callable[[KeyId], int]
    """What requests there hold of a key's budget, or have spent a moment ago."""
    reload_s: float
    """How often a budget is read anew: often enough that what is pending there is never left out."""


async def open_accounting(
    data: Path,
    books: LedgerStore,
    *,
    clock: Clock,
    rng: Rng,
    send: Callable[[NodeId, Countersignature], None],
    peers: PeerCredits | None = None,
) -> Accounting:
    """Settle what others left, then open a journal of our own. Raises StartupError.

    `send`: brings a node its countersigned receipts.
    """
    root = await asyncio.to_thread(lambda: make_private_dir(data.expanduser() / JOURNALS))
    for orphan in await asyncio.to_thread(lambda: list(_orphans(root))):
        await _settle(orphan, books, clock=clock)
    instance = new_id("gw", rng=rng)
    directory = await asyncio.to_thread(_own_directory, root, instance)
    journal = Journal(directory.path, call_soon=asyncio.get_running_loop().call_soon)
    ledger = Ledger(books, journal, instance=instance, clock=clock, reclaim=peers.call_in if peers else None)
    key = await asyncio.to_thread(_signing_key, root.parent, rng)
    receipts = ReceiptIntake(books, key, clock=clock, send=send)
    if peers is None:
        budgets = KeyBudgets(books, clock=clock)
    else:
        budgets = KeyBudgets(books, clock=clock, pending_at_peers=peers.pending, reload_s=peers.reload_s)
    return Accounting(directory, journal, ledger, Metering(ledger, receipts, budgets, clock=clock))


def _own_directory(root: Path, instance: str) -> DataDir:
    """Locked before it is to be seen: another that starts at this moment would take it for a dead one's."""
    directory = DataDir(root / f"{NEW}{instance}")
    directory.rename(instance)
    return directory


def _orphans(root: Path) -> Iterator[DataDir]:
    """Journals that no living process holds."""
    for path in sorted(root.iterdir()):
        if not path.is_dir() or path.name.startswith(NEW):
            continue
        try:
            yield DataDir(path)
        except StartupError:
            continue  # its gateway is alive


async def _settle(orphan: DataDir, books: LedgerStore, *, clock: Clock) -> None:
    """What a gateway that died had open or unposted. One that cannot be settled stays for a person to look at."""
    records = await asyncio.to_thread(lambda: list(read_journal(orphan.path)))
    journal = Journal(orphan.path)
    ledger = Ledger(books, journal, instance=orphan.path.name, clock=clock)
    try:
        settled = await ledger.recover(unsettled_jobs(records, now_unix_s=clock.unix_s()))
    except UnbalancedEntry as error:
        _log.crash("journal_not_settled", error, journal=orphan.path.name)
        return
    finally:
        journal.close()
        orphan.close()
    _log.info("journal_settled", journal=orphan.path.name, jobs=settled)
    await asyncio.to_thread(shutil.rmtree, orphan.path, ignore_errors=True)


def _signing_key(data: Path, rng: Rng) -> SigningKey:
    """With which this gateway countersigns receipts; made once."""
    path = data / KEY_FILE
    if not path.exists():
        write_private(path, SigningKey.generate(rng=rng).secret_hex().encode())
    try:
        return SigningKey.read(path)
    except ValueError:
        raise StartupError(f"{path} holds no key. Restore it, or delete it to have a new one made.") from None
