"""A ledger store in memory, for unit and state-machine tests. It passes the same suite as the one in Postgres."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Sequence

from sparewatt.core.errors import InsufficientCredits, StoreUnavailable
from sparewatt.core.ids import AccountId, KeyId, MatchId
from sparewatt.core.money import Nano
from sparewatt.store.ledger import AuditResult, JobRow, LedgerStore, Posting, ReceiptRow, Transfer

OUTSIDE = ("network:deposits", "network:grants")


def month_of(unix_s: float) -> dt.date:
    return dt.datetime.fromtimestamp(unix_s, dt.UTC).date().replace(day=1)


class MemoryBooks(LedgerStore):
    def __init__(self) -> None:
        self.jobs: dict[MatchId, JobRow] = {}
        self.receipts: dict[tuple[str, str], ReceiptRow] = {}
        self.transfers: dict[str, Transfer] = {}
        self.lines: list[tuple[str, dt.date, str, int]] = []
        self.slices: dict[tuple[str, str], int] = {}
        self.leaving: list[AccountId] = []
        self.kept: set[dt.date] = set()
        self.dropped: set[dt.date] = set()
        self._projected: dict[str, int] = defaultdict(int)
        self._carried: dict[str, int] = defaultdict(int)
        self.is_away = False
        self.loses_replies = False
        """The next change is made, but its reply is lost."""

    async def _yield(self) -> None:
        """Let other tasks run, as every query does."""
        await asyncio.sleep(0)
        if self.is_away:
            raise StoreUnavailable("away")

    def _replied(self) -> None:
        if self.loses_replies:
            self.loses_replies = False
            raise StoreUnavailable("the reply was lost")

    def sliced(self, account: str, *, but: str | None = None) -> int:
        return sum(n for (name, instance), n in self.slices.items() if name == account and instance != but)

    # jobs

    async def post_jobs(self, jobs: Sequence[JobRow], *, instance: str) -> int:
        await self._yield()
        fresh = {job.id: job for job in jobs if job.id not in self.jobs}
        fresh = {n: job for n, job in fresh.items() if month_of(job.opened_unix_s) not in self.dropped}
        self.jobs |= fresh
        for job in fresh.values():
            self._add(job.cause, job.opened_unix_s, job.lines)
            self._use(job.lines, instance)
        self._replied()
        return len(fresh)

    def _add(self, cause: str, unix_s: float, lines: Iterable[Posting]) -> None:
        self.kept.add(month_of(unix_s))
        for account, nano in lines:
            self.lines.append((cause, month_of(unix_s), account, nano))
            if not account.startswith("job:"):
                self._projected[account] += nano

    def _use(self, lines: Iterable[Posting], instance: str) -> None:
        for account, nano in lines:
            if nano < 0 and (account, instance) in self.slices:
                self.slices[account, instance] = max(0, self.slices[account, instance] + nano)

    async def save_receipts(self, receipts: Sequence[ReceiptRow]) -> None:
        await self._yield()
        for receipt in receipts:
            self.receipts.setdefault((receipt.job_id, receipt.node_id), receipt)
        self._replied()

    # transfers

    async def post_transfer(self, transfer: Transfer) -> bool:
        await self._yield()
        if transfer.cause in self.transfers:
            return False
        sums: dict[str, int] = defaultdict(int)
        for account, nano in transfer.lines:
            sums[account] += nano
        for account, nano in sums.items():
            left = self._projected[account] + nano
            if nano < 0 and account not in OUTSIDE and left < self.sliced(account):
                raise InsufficientCredits("There is not that much left to take.")
        self.transfers[transfer.cause] = transfer
        self._add(transfer.cause, transfer.unix_s, transfer.lines)
        self._replied()
        return True

    # slices

    async def take_slice(self, account: str, *, instance: str, have: int, wanted: int, preferred: int = 0) -> Nano:
        await self._yield()
        if account not in self._projected:
            return Nano(0)
        free = max(0, self._projected[account] - self.sliced(account, but=instance) - have)
        taken = max(0, min(free, max(wanted, min(preferred, free // 2))))
        self.slices[account, instance] = have + taken
        self._replied()
        return Nano(taken)

    async def list_leaving(self) -> list[AccountId]:
        await self._yield()
        return self.leaving

    async def return_slices(self, accounts: Sequence[str], *, instance: str) -> None:
        await self._yield()
        for account in accounts:
            self.slices.pop((account, instance), None)
        self._replied()

    async def drop_slices(self, instance: str) -> None:
        await self._yield()
        self.slices = {which: nano for which, nano in self.slices.items() if which[1] != instance}

    # reads

    async def balances(self, accounts: Sequence[str]) -> dict[str, Nano]:
        await self._yield()
        return {account: Nano(self._projected.get(account, 0)) for account in accounts}

    async def spent_by_key(self, key_id: KeyId, *, since_unix_s: float) -> Nano:
        await self._yield()
        mine = (job for job in self.jobs.values() if job.key_id == key_id and job.opened_unix_s >= since_unix_s)
        return Nano(sum(job.cost_nano for job in mine))

    async def promo_to_expire(self, *, now_unix_s: float) -> list[tuple[str, int, int, int]]:
        await self._yield()
        found: list[tuple[str, int, int, int]] = []
        for account, nano in self._projected.items():
            grants = [t for t in self.transfers.values() if t.kind == "grant" and f"promo:{t.account_id}" == account]
            live = sum(t.nano for t in grants if t.expires_unix_s is None or t.expires_unix_s > now_unix_s)
            sliced = self.sliced(account)
            if account.startswith("promo:") and nano > live + sliced:
                found.append((account, nano, live, sliced))
        return found

    def _truth(self) -> dict[str, int]:
        truth = defaultdict(int, self._carried)
        for _, _, account, nano in self.lines:
            if not account.startswith("job:"):
                truth[account] += nano
        return truth

    async def audit(self) -> AuditResult:
        await self._yield()
        causes: dict[str, int] = defaultdict(int)
        clearing: dict[str, int] = defaultdict(int)
        for cause, _, account, nano in self.lines:
            causes[cause] += nano
            clearing[account] += nano if account.startswith("job:") else 0
        truth, shown = self._truth(), self._projected
        return AuditResult(
            total=sum(nano for *_, nano in self.lines) + sum(self._carried.values()),
            unbalanced_causes=sum(nano != 0 for nano in causes.values()),
            open_clearing_accounts=sum(nano != 0 for nano in clearing.values()),
            wrong_balances=sum(truth.get(name, 0) != shown.get(name, 0) for name in {*truth, *shown}),
            overdrawn=sum(n < 0 for name, n in shown.items() if name.startswith(("promo:", "credits:"))),
        )

    async def rebuild_balances(self) -> None:
        await self._yield()
        self._projected = defaultdict(int, self._truth())

    # months

    async def forget_months(self, *, before_unix_s: float) -> list[dt.date]:
        await self._yield()
        old = sorted(month for month in self.kept if month < month_of(before_unix_s))
        for _, month, account, nano in self.lines:
            self._carried[account] += nano if month in old else 0
        self.lines = [line for line in self.lines if line[1] not in old]
        self.jobs = {n: job for n, job in self.jobs.items() if month_of(job.opened_unix_s) not in old}
        self.kept -= set(old)
        self.dropped |= set(old)
        return old
