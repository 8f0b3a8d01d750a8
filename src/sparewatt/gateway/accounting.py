"""The gateway's side of the books: its write-ahead log (journal), and the money service made from its settings.

A gateway that starts takes a new name and a new journal. First it settles every journal on this machine whose gateway
is gone (crash recovery): nothing depends on the same process coming back.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sparewatt.core.clock import Clock
from sparewatt.core.errors import InvalidAmount, StartupError, UnbalancedEntry
from sparewatt.core.ids import AccountId, KeyId, NodeId, new_id
from sparewatt.core.log import Logger
from sparewatt.core.money import NANO_PER_USD, Nano, parse_usd
from sparewatt.core.rng import Rng
from sparewatt.gateway.settings import GatewaySettings
from sparewatt.inference.metering.receipt_intake import ReceiptIntake
from sparewatt.inference.metering.service import Metering
from sparewatt.ledger.budgets import KeyBudgets
from sparewatt.ledger.chain_credits import ChainCreditService
from sparewatt.ledger.credits import CreditRules, CreditService
from sparewatt.ledger.deposit_adapters import ChainPaymentAdapter, adapters_for
from sparewatt.ledger.journal import Journal, read_journal, unsettled_jobs
from sparewatt.ledger.ledger import Ledger
from sparewatt.ledger.money_service import MoneyService
from sparewatt.ledger.payouts import PayoutService
from sparewatt.ledger.uptime_fund import UptimeFund
from sparewatt.machine.data_dir import DataDir, make_private_dir, write_private
from sparewatt.protocol.link.receipts import Countersignature
from sparewatt.protocol.signing import SigningKey
from sparewatt.store.database import Database
from sparewatt.store.ledger import LedgerStore

_log = Logger("sparewatt.gateway")
JOURNALS = "journals"
UNLOCKED_PREFIX = "."
"""Of a journal directory that is not locked yet."""
KEY_FILE = "gateway.key"
DEVELOPMENT_DAILY = Nano(10 * NANO_PER_USD)
"""Of treasury and uptime fund each, by default, on a development network: it gives test money away."""
_HOUR_S = 3_600.0


@dataclass(slots=True)
class Accounting:
    """Open as long as the gateway runs."""

    directory: DataDir
    journal: Journal
    ledger: Ledger
    metering: Metering

    async def close(self) -> None:
        """Post what is left. What cannot be posted, or still runs, stays in the journal for the next gateway."""
        if not await self.ledger.close_down():
            self.journal.flush()
            return
        self.journal.close()
        path = self.directory.path
        self.directory.close()
        await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)


class PeerCredits(NamedTuple):
    """The credits of an account at the other processes of this gateway."""

    call_in: Callable[[AccountId], Awaitable[bool]]
    """Make them return unused credits; whether any did."""
    pending: Callable[[KeyId], int]
    """What requests there hold of a key's budget, or have spent and not posted yet."""
    reload_s: float
    """Between two reads of a budget: so short that pending spending is never left out."""


async def open_accounting(
    data: Path,
    books: LedgerStore,
    *,
    clock: Clock,
    rng: Rng,
    send: Callable[[NodeId, Countersignature], None],
    peers: PeerCredits | None = None,
    withholds: Callable[[NodeId, AccountId], bool] | None = None,
) -> Accounting:
    """Settle the journals of dead gateways, then open a new one. Raises StartupError.

    `send`: sends a node its countersigned receipts. `withholds`: whether a node's pay waits for a check of its answers.
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
    return Accounting(directory, journal, ledger, Metering(ledger, receipts, budgets, clock=clock, withholds=withholds))


def _own_directory(root: Path, instance: str) -> DataDir:
    """Locked before it gets its name: else a gateway that starts at this moment would settle it as a dead one's."""
    directory = DataDir(root / f"{UNLOCKED_PREFIX}{instance}")
    directory.rename(instance)
    return directory


def _orphans(root: Path) -> Iterator[DataDir]:
    """Journals that no running process has locked."""
    for path in sorted(root.iterdir()):
        if not path.is_dir() or path.name.startswith(UNLOCKED_PREFIX):
            continue
        try:
            yield DataDir(path)
        except StartupError:
            continue  # its gateway is running


async def _settle(orphan: DataDir, books: LedgerStore, *, clock: Clock) -> None:
    """Settle what a dead gateway had open or unposted. A journal that cannot be settled stays for an operator."""
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
    """The key that countersigns receipts; made once."""
    path = data / KEY_FILE
    if not path.exists():
        write_private(path, SigningKey.generate(rng=rng).secret_hex().encode())
    try:
        return SigningKey.read(path)
    except ValueError:
        raise StartupError(f"{path} holds no key. Restore it, or delete it: then a new one is made.") from None


def make_money_service(settings: GatewaySettings, database: Database, *, clock: Clock) -> MoneyService:
    """Raises StartupError for invalid settings."""
    if settings.development and settings.public_url is not None:
        raise StartupError("A development network gives test money away: it cannot have a --public-url.")
    on_chain = ChainPaymentAdapter(database, clock) if settings.chain_url else None
    return MoneyService(
        books=database.ledger,
        credits=CreditService(database.ledger, rules=_credit_rules(settings), clock=clock),
        settlement=PayoutService(database.payouts, clock=clock),
        uptime_fund=UptimeFund(database.ledger, database.uptime_credits, _uptime_daily(settings), clock),
        adapters=adapters_for(development=settings.development, chain=on_chain),
        on_chain=on_chain,
        chain_credits=ChainCreditService(database, clock) if settings.chain_url else None,
        payout_s=settings.payout_hours * _HOUR_S,
    )


def _credit_rules(settings: GatewaySettings) -> CreditRules:
    daily = read_usd(settings.treasury_daily_usd, "treasury_daily_usd")
    return CreditRules(
        signup=read_usd(settings.signup_credit_usd, "signup_credit_usd"),
        promo_days=settings.promo_days,
        grants_per_address_day=settings.grants_per_address_day,
        treasury_daily=daily or (DEVELOPMENT_DAILY if settings.development else daily),
    )


def _uptime_daily(settings: GatewaySettings) -> Nano:
    daily = read_usd(settings.uptime_credit_daily_usd, "uptime_credit_daily_usd")
    return daily or (DEVELOPMENT_DAILY if settings.development else daily)


def read_usd(text: str, name: str) -> Nano:
    try:
        return parse_usd(text)
    except InvalidAmount as error:
        raise StartupError(f"A setting in [gateway] is wrong: {name}: {error.message}") from None
