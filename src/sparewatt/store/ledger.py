"""The double-entry ledger in Postgres: settled jobs, transfers, postings, balances, and slices of balances.

A batch is posted in one transaction, and each cause once, however often it is posted. What a job costs is decided in
`ledger/rules.py`.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import astuple

from sparewatt.core.errors import InsufficientCredits, StoreUnavailable
from sparewatt.core.ids import AccountId, KeyId, MatchId, NodeId
from sparewatt.core.money import Nano
from sparewatt.store.connection_pool import ConnectionPool, Store, sql
from sparewatt.store.migrations import PgConnection

Posting = tuple[str, int]
"""An account of the ledger, and what it gains or loses."""
MONTHS_PER_YEAR = 12
LEAVING_LISTED_MAX = 10_000
WITHHELD_LISTED_MAX = 100_000


class AttemptRow(msgspec.Struct, frozen=True, gc=False):
    """One node's part of a job, in the order of the columns of `insert_attempts`.

    It is made for every job: a struct is quick to make, and the garbage collector skips it.
    """

    job_id: MatchId
    opened_unix_s: float
    position: int
    node_id: NodeId
    owner_id: AccountId
    model: str
    outcome: str
    prompt_tokens: int
    completion_tokens: int
    claimed_tokens: int
    prompt_price: int
    completion_price: int
    net_nano: int
    net_promo_nano: int
    fee_nano: int
    first_token_ms: float | None
    duration_ms: float


@dataclass(frozen=True, slots=True)
class WithheldRow:
    owner_id: AccountId
    node_id: NodeId
    paid: int
    promo: int


class JobRow(msgspec.Struct, frozen=True, gc=False):
    """A settled job, in the order of the columns of `insert_jobs`, then its attempts and postings."""

    id: MatchId
    opened_unix_s: float
    closed_unix_s: float
    account_id: AccountId
    key_id: KeyId
    model: str
    state: str
    reason: str | None
    finish_reason: str | None
    stream: bool
    prompt_tokens: int
    completion_tokens: int
    cost_nano: int
    promo_nano: int
    attempts: tuple[AttemptRow, ...]
    lines: tuple[Posting, ...]

    @property
    def cause(self) -> str:
        return f"job:{self.id}"

    @property
    def values(self) -> tuple[Any, ...]:
        """The columns, without attempts and postings."""
        return astuple(self)[:-2]


class ReceiptRow(msgspec.Struct, frozen=True, gc=False):
    job_id: MatchId
    node_id: NodeId
    unix_s: float
    prompt_tokens: int
    completion_tokens: int
    seen_tokens: int
    disputed: bool
    signature: bytes
    """Of the receipt, or of the sheet of receipts that it is on."""
    proof: bytes | None = None
    """For a disputed receipt: JSON that proves what the node signed."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """Money that moves for another reason than a job."""

    cause: str
    """The idempotency key: a cause is posted once."""
    kind: str
    account_id: AccountId
    nano: Nano
    lines: tuple[Posting, ...]
    unix_s: float
    expires_unix_s: float | None = None
    memo: str | None = None


@dataclass(frozen=True, slots=True)
class AuditResult:
    """All zero in a ledger that is in order."""

    total: int
    unbalanced_causes: int
    open_clearing_accounts: int
    wrong_balances: int
    overdrawn: int

    @property
    def is_clean(self) -> bool:
        return self == AuditResult(0, 0, 0, 0, 0)


class LedgerStore(Store):
    def __init__(self, pool: ConnectionPool) -> None:
        super().__init__(pool)
        self._months: set[dt.date] = set()

    # jobs

    async def post_jobs(self, jobs: Sequence[JobRow], *, instance: str) -> int:
        """Post a batch, all or nothing. A job that is posted already changes nothing. Returns how many were new."""
        await self.ensure_months(job.opened_unix_s for job in jobs)
        async with self._pool.transaction() as connection:
            rows = await connection.fetch(sql("insert_jobs"), *to_columns([job.values for job in jobs], width=14))
            new = {str(row["id"]) for row in rows}
            new_jobs = [job for job in {job.id: job for job in jobs}.values() if job.id in new]
            await self._post_fresh(connection, new_jobs, instance=instance)
        return len(new_jobs)

    async def _post_fresh(self, connection: PgConnection, jobs: Sequence[JobRow], *, instance: str) -> None:
        attempts = [astuple(row) for job in jobs for row in job.attempts]
        lines = [line for job in jobs for line in job.lines]
        sums = _sums(lines)
        if attempts:
            await connection.execute(sql("insert_attempts"), *to_columns(attempts, width=17))
        if lines:
            causes = [cause for job in jobs for cause in [job.cause] * len(job.lines)]
            moments = [at for job in jobs for at in [job.opened_unix_s] * len(job.lines)]
            await connection.execute(sql("insert_postings"), causes, moments, *to_columns(lines, width=2))
            await connection.execute(sql("add_to_balances"), list(sums), list(sums.values()))
            used = {account: -nano for account, nano in sums.items() if nano < 0}
            await connection.execute(sql("use_slices"), instance, list(used), list(used.values()))

    async def save_receipts(self, receipts: Sequence[ReceiptRow]) -> None:
        await self.ensure_months(receipt.unix_s for receipt in receipts)
        await self._pool.execute("insert_receipts", *to_columns(map(astuple, receipts), width=9))

    # transfers

    async def post_transfer(self, transfer: Transfer) -> bool:
        """False if its cause was posted before. Raises InsufficientCredits if it would overdraw an account."""
        await self.ensure_months([transfer.unix_s])
        async with self._pool.transaction() as connection:
            return await post_transfer_within(connection, transfer)

    async def post_if_unchanged(self, transfer: Transfer, *, standing: Mapping[str, int]) -> bool:
        """As `post_transfer`, but False if an account in `standing` has another balance: a compare-and-set."""
        await self.ensure_months([transfer.unix_s])
        async with self._pool.transaction() as connection:
            touched = sorted({*standing, *(account for account, _ in transfer.lines)})
            balances = {row["account"]: row["nano"] for row in await connection.fetch(sql("standing_of"), touched)}
            if any(balances.get(account, 0) != nano for account, nano in standing.items()):
                return False
            return await post_transfer_within(connection, transfer)

    async def post_within_daily_limit(self, transfer: Transfer, *, who: bytes, per_day: int) -> bool:
        """As `post_transfer`; False also if `who` (a digest) caused `per_day` transfers today already."""
        await self.ensure_months([transfer.unix_s])
        async with self._pool.transaction() as connection:
            day = dt.datetime.fromtimestamp(transfer.unix_s, dt.UTC).date()
            if await connection.fetchval(sql("count_grant"), who, day, per_day) is None:
                return False
            return await post_transfer_within(connection, transfer)

    # slices

    async def take_slice(self, account: str, *, instance: str, have: int, wanted: int, preferred: int = 0) -> Nano:
        """Reserve up to `wanted` of what no gateway has reserved yet. Returns how much it was.

        Takes up to `preferred` if that leaves as much for others. `have` is what this gateway knows to have: what was
        reserved for it by a reply that never arrived is free again.
        """
        async with self._pool.transaction() as connection:
            balance = await connection.fetchval(sql("lock_balance"), account)
            if balance is None:
                return Nano(0)
            others = await connection.fetchval(sql("sliced_by_others"), account, instance)
            free = max(0, balance - others - have)
            taken = max(0, min(free, max(wanted, min(preferred, free // 2))))
            await connection.execute(sql("set_slice"), account, instance, have + taken)
        return Nano(taken)

    async def list_leaving(self) -> list[AccountId]:
        """Accounts whose exit from the network asks for credits that others have reserved."""
        return [AccountId(row["account_id"]) for row in await self._pool.rows("accounts_leaving", LEAVING_LISTED_MAX)]

    async def return_slices(self, accounts: Sequence[str], *, instance: str) -> None:
        """All that this gateway has reserved of these. Locked as in `take_slice`, so that neither undoes the other."""
        async with self._pool.transaction() as connection:
            await connection.execute(sql("lock_balances"), list(accounts))
            await connection.execute(sql("return_slices"), list(accounts), instance)

    async def drop_slices(self, instance: str) -> None:
        """Everything that this gateway had reserved; only after its journal was posted."""
        await self._pool.execute("drop_slices", instance)

    # reads

    async def balances(self, accounts: Sequence[str]) -> dict[str, Nano]:
        """Zero for an account without postings."""
        rows = await self._pool.rows("balances_of", list(accounts))
        balances = {str(row["account"]): Nano(row["nano"]) for row in rows}
        return {account: balances.get(account, Nano(0)) for account in accounts}

    async def spent_by_key(self, key_id: KeyId, *, since_unix_s: float) -> Nano:
        return Nano(await self._pool.value("spent_by_key", key_id, since_unix_s))

    async def transfer_totals(self, account_id: AccountId) -> dict[str, Nano]:
        """The sum of all transfers of each kind."""
        rows = await self._pool.rows("moved", account_id)
        return {str(row["kind"]): Nano(row["nano"]) for row in rows}

    async def reserved(self, accounts: Sequence[str]) -> Nano:
        """What gateways have reserved of these accounts' balances."""
        return Nano(await self._pool.value("reserved", list(accounts)))

    async def promo_ends_at(self, account_id: AccountId, *, now_unix_s: float) -> float | None:
        """When the next of its grants expires."""
        ends: dt.datetime | None = await self._pool.value("promo_ends_at", account_id, now_unix_s)
        return ends.timestamp() if ends else None

    async def promo_incomes(self, *, limit: int) -> dict[AccountId, Nano]:
        """Owners with promo income, those with the most first."""
        rows = await self._pool.rows("promo_incomes", limit)
        return {AccountId(row["owner_id"]): Nano(row["nano"]) for row in rows}

    async def withheld(self, *, owner: AccountId | None = None, limit: int = WITHHELD_LISTED_MAX) -> list[WithheldRow]:
        """What nodes earned since their last passed check, of one owner or of all."""
        return await self._pool.rows_as(WithheldRow, "withheld", owner, limit)

    async def note_withheld(self, *, older_than_s: float) -> list[WithheldRow]:
        """What has been withheld for so long. Notes what there is now, for the next time that this is asked."""
        return await self._pool.rows_as(WithheldRow, "note_withheld", older_than_s, WITHHELD_LISTED_MAX)

    async def redeemed_since(self, unix_s: float) -> Nano:
        return Nano(await self._pool.value("redeemed_since", unix_s))

    async def find_transfer(self, cause: str) -> tuple[AccountId, Nano] | None:
        """Account and amount of a cause that was posted."""
        row = await self._pool.row("find_transfer", cause)
        return None if row is None else (AccountId(row["account_id"]), Nano(row["nano"]))

    async def find_memo(self, cause: str) -> tuple[AccountId, str] | None:
        """Account and memo of a cause that was posted."""
        row = await self._pool.row("find_transfer_memo", cause)
        return None if row is None else (AccountId(row["account_id"]), str(row["memo"]))

    async def forget_grant_counts(self) -> None:
        """Counts per address are needed for a day."""
        await self._pool.execute("forget_grant_counts")

    async def promo_to_expire(self, *, now_unix_s: float) -> list[tuple[str, int, int, int]]:
        """Account, balance, what unexpired grants cover, what is reserved."""
        rows = await self._pool.rows("promo_to_expire", now_unix_s)
        return [(row["account"], row["nano"], row["unexpired"], row["sliced"]) for row in rows]

    async def audit(self) -> AuditResult:
        row = await self._pool.row("audit")
        if row is None:
            raise StoreUnavailable("The books could not be read.")
        return AuditResult(**{name: int(value) for name, value in row.items()})

    async def rebuild_balances(self) -> None:
        """Balances are a projection of the postings: compute them again."""
        async with self._pool.transaction() as connection:
            await connection.execute(sql("lock_books"))
            await connection.execute(sql("empty_balances"))
            await connection.execute(sql("rebuild_balances"))

    # months

    async def ensure_months(self, moments: Iterable[float]) -> None:
        """Create the partitions of these moments, outside the transaction that posts into them."""
        for month in _months_of(moments) - self._months:
            await self._pool.execute("ensure_month", month)
            self._months.add(month)

    async def forget_months(self, *, before_unix_s: float) -> list[dt.date]:
        """Drop whole months that ended before a moment. Their sums are carried over, so balances stay right."""
        kept: list[dt.date] = [row["month"] for row in await self._pool.rows("kept_months")]
        old = [month for month in kept if month < _month_of(before_unix_s)]
        for month in old:
            await self._pool.execute("drop_month", month)
            self._months.discard(month)
        return old


async def post_transfer_within(connection: PgConnection, transfer: Transfer) -> bool:
    """Within the caller's transaction, which must be rolled back if this raises."""
    if await connection.fetchrow(sql("insert_transfer"), *_transfer_values(transfer)) is None:
        return False
    await _post_lines(connection, [transfer])
    return True


async def post_transfers_within(connection: PgConnection, transfers: Sequence[Transfer]) -> None:
    """Transfers that are known to be new, within the caller's transaction."""
    if transfers:
        await connection.execute(sql("insert_transfers"), *to_columns(map(_transfer_values, transfers), width=7))
        await _post_lines(connection, transfers)


async def _post_lines(connection: PgConnection, transfers: Sequence[Transfer]) -> None:
    lines = [(transfer.cause, transfer.unix_s, *line) for transfer in transfers for line in transfer.lines]
    await connection.execute(sql("insert_postings"), *to_columns(lines, width=4))
    sums = _sums(line for transfer in transfers for line in transfer.lines)
    await connection.execute(sql("add_to_balances"), list(sums), list(sums.values()))
    debited = [name for name, nano in sums.items() if nano < 0 and not _may_go_negative(name)]
    if await connection.fetchrow(sql("overdrawn"), debited) is not None:
        raise InsufficientCredits("There is not that much left to take.")


def retention_start(now_unix_s: float, months: int) -> float:
    """The beginning (UTC) of the oldest month that is kept: this month, and `months` whole ones before it."""
    now = dt.datetime.fromtimestamp(now_unix_s, dt.UTC)
    year, month = divmod(now.year * MONTHS_PER_YEAR + now.month - 1 - months, MONTHS_PER_YEAR)
    return dt.datetime(year, month + 1, 1, tzinfo=dt.UTC).timestamp()


def _month_of(unix_s: float) -> dt.date:
    return dt.datetime.fromtimestamp(unix_s, dt.UTC).date().replace(day=1)


def _months_of(moments: Iterable[float]) -> set[dt.date]:
    """Nearly always the first and the last lie in the same."""
    ordered = sorted(moments)
    if not ordered:
        return set()
    first, last = _month_of(ordered[0]), _month_of(ordered[-1])
    return {first} if first == last else {_month_of(unix_s) for unix_s in ordered}


_PUT_ASIDE = frozenset({"network:treasury", "network:uptime"})
"""What the operator has put aside is spent once."""


def _may_go_negative(account: str) -> bool:
    """The accounts that money comes from: their balance is minus what came.

    Also those that follow the chain: what happened there is posted as it is, and an audit finds what cannot be.
    """
    return account.startswith(("network:", "wallet:", "escrow:", "bond:", "owed:")) and account not in _PUT_ASIDE


def _sums(lines: Iterable[Posting]) -> dict[str, int]:
    """By account, in the order of names. Clearing accounts have no balance: they are zero once a job is settled."""
    sums: dict[str, int] = defaultdict(int)
    for account, nano in lines:
        if not account.startswith("job:"):
            sums[account] += nano
    return {account: sums[account] for account in sorted(sums)}


def to_columns(rows: Iterable[Sequence[Any]], *, width: int) -> list[list[Any]]:
    """One array per column, as `unnest` takes them. `width` is the number of columns where there are no rows."""
    arrays = [list(column) for column in zip(*rows, strict=True)]
    return arrays or [[] for _ in range(width)]


def _transfer_values(transfer: Transfer) -> tuple[Any, ...]:
    return (
        *(transfer.cause, transfer.unix_s, transfer.kind, transfer.account_id, transfer.nano),
        *(transfer.expires_unix_s, transfer.memo),
    )
