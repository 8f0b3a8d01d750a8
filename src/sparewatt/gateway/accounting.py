"""The gateway's side of the books: its journal, what dead gateways on this machine left behind, and the chores.

A gateway that starts takes a new name and a new journal. Every journal whose gateway is gone is settled first, by
whoever starts next: nothing depends on the same process coming back.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sparewatt.core.clock import Clock
from sparewatt.core.errors import StartupError, UnbalancedEntry
from sparewatt.core.ids import new_id
from sparewatt.core.log import Log
from sparewatt.core.rng import Rng
from sparewatt.inference.metering.receipts import ReceiptDesk
from sparewatt.inference.metering.service import Metering
from sparewatt.ledger.budgets import Budgets
from sparewatt.ledger.journal import Journal, left_over, read_journal
from sparewatt.ledger.service import Ledger
from sparewatt.protocol.signing import SigningKey
from sparewatt.store.books import Books
from sparewatt.supervisor.data_dir import DataDir, make_private_dir, write_private

_log = Log("sparewatt.gateway")
JOURNALS = "journals"
NEW = "."
"""How the name of a directory begins that nobody holds yet."""
POST_S = 0.5
PROGRESS_S = 0.25
PURSES_S = 1.0
FILL_S = 0.01
"""Between two times that purses are filled which run low; those of the same moment are filled one after another."""
RECEIPTS_S = 1.0
Chore = tuple[float, Callable[[], Awaitable[None]], str]
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


def chores(accounting: Accounting | None) -> list[Chore]:
    """What the books need done in the background: how often, what, and what it is called."""
    if accounting is None:
        return []
    return [
        (POST_S, accounting.ledger.flush, "books_post"),
        (PROGRESS_S, accounting.metering.note_progress, "books_progress"),
        (FILL_S, accounting.ledger.fill_low_purses, "purses_fill"),
        (PURSES_S, accounting.ledger.tend_purses, "purses"),
        (RECEIPTS_S, accounting.metering.receipts.settle, "receipts"),
    ]


async def open_accounting(data: Path, books: Books, *, clock: Clock, rng: Rng) -> Accounting:
    """Settle what others left, then open a journal of our own. Raises StartupError."""
    root = await asyncio.to_thread(lambda: make_private_dir(data.expanduser() / JOURNALS))
    for orphan in await asyncio.to_thread(lambda: list(_orphans(root))):
        await _settle(orphan, books, clock=clock)
    instance = new_id("gw", rng=rng)
    directory = await asyncio.to_thread(_own_directory, root, instance)
    journal = Journal(directory.path, later=asyncio.get_running_loop().call_soon)
    ledger = Ledger(books, journal, instance=instance, clock=clock)
    key = await asyncio.to_thread(_signing_key, root.parent, rng)
    receipts = ReceiptDesk(books, key, clock=clock)
    return Accounting(directory, journal, ledger, Metering(ledger, receipts, Budgets(books, clock=clock), clock=clock))


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


async def _settle(orphan: DataDir, books: Books, *, clock: Clock) -> None:
    """What a gateway that died had open or unposted. One that cannot be settled stays for a person to look at."""
    records = await asyncio.to_thread(lambda: list(read_journal(orphan.path)))
    journal = Journal(orphan.path)
    ledger = Ledger(books, journal, instance=orphan.path.name, clock=clock)
    try:
        settled = await ledger.recover(left_over(records, now_unix_s=clock.unix_s()))
    except UnbalancedEntry:
        _log.crash("journal_not_settled", journal=orphan.path.name)
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
