"""Credits: sign-up grants, grants, deposits, expiry, and the redemption of promo income by the treasury.

Every transfer has a cause, its idempotency key, so that it is posted once. Routes decide which principal may do what.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from sparewatt.accounts.public_rate_limits import client_network
from sparewatt.core.clock import Clock
from sparewatt.core.errors import IdReused, InsufficientCredits, InvalidField
from sparewatt.core.ids import NETWORK_ACCOUNT, AccountId
from sparewatt.core.limits import TRANSFER_NANO_MAX
from sparewatt.core.log import Logger
from sparewatt.core.money import Nano, format_usd
from sparewatt.ledger import chart, rules
from sparewatt.ledger.budgets import period_start
from sparewatt.ledger.deposit_adapters import ConfirmedDeposit
from sparewatt.store.ledger import LedgerStore, Posting, Transfer

_log = Logger("sparewatt.ledger")
_DAY_S = 86_400.0
OWNERS_PER_REDEMPTION = 1_000
"""Owners who share the treasury's budget in one round, those with the most promo income first."""
GRANT_WITHHELD = (
    "No free credits came with this account: others have signed up from your address today. "
    "Deposit some, or ask the network's operator for a grant."
)


@dataclass(frozen=True, slots=True)
class CreditRules:
    """The operator's settings for promo credits."""

    signup: Nano
    promo_days: float
    grants_per_address_day: int
    treasury_daily: Nano
    """What of the treasury may become payable per day."""


@dataclass(frozen=True, slots=True)
class Balance:
    """What an account has, including what gateways have reserved for its requests."""

    promo: Nano
    paid: Nano
    reserved: Nano
    granted: Nano
    deposited: Nano
    expired: Nano
    credited: Nano
    """For leases that were down, out of the operator's fund."""
    moved: Nano
    """Left for the chain: to leases and bonds, or out of the network."""
    promo_ends_unix_s: float | None

    @property
    def total(self) -> Nano:
        return Nano(self.promo + self.paid)

    @property
    def received(self) -> Nano:
        """To spend here. A lease's deposit that came back is not counted twice, though it was a deposit again."""
        return Nano(self.granted + self.deposited + self.credited - self.expired - self.moved)

    @property
    def spent(self) -> Nano:
        return Nano(self.received - self.total)


@dataclass(frozen=True, slots=True)
class TreasuryStatus:
    balance: Nano
    daily: Nano
    redeemed_today: Nano


def checked_transfer_nano(nano: int) -> Nano:
    """An amount that one transfer may move. Raises InvalidField."""
    if nano <= 0:
        raise InvalidField("The amount must be more than $0.", param="usd")
    if nano > TRANSFER_NANO_MAX:
        raise InvalidField(
            f"At most ${format_usd(TRANSFER_NANO_MAX)} can be moved at a time. Move it in parts.", param="usd"
        )
    return Nano(nano)


def deposit_transfer(account_id: AccountId, deposit: ConfirmedDeposit, *, adapter: str, unix_s: float) -> Transfer:
    """Raises InvalidField for an amount that one transfer may not move."""
    lines = tuple(rules.deposit_postings(account_id, checked_transfer_nano(deposit.nano)))
    return Transfer(f"deposit:{adapter}:{deposit.reference}", "deposit", account_id, deposit.nano, lines, unix_s)


@dataclass(frozen=True, slots=True)
class CreditService:
    books: LedgerStore
    rules: CreditRules
    clock: Clock

    # incoming

    async def on_signup(self, account_id: AccountId, *, address: str) -> str | None:
        """Grant promo credits, unless the client's address has had its share today: then returns a notice of that."""
        if not self.rules.signup:
            return None
        grant = self._grant(account_id, self.rules.signup, cause=f"signup:{account_id}")
        limit = self.rules.grants_per_address_day
        if not await self.books.post_within_daily_limit(grant, who=_digest(address), per_day=limit):
            _log.info("signup_grant_withheld", account=account_id)
            return GRANT_WITHHELD
        return None

    async def grant(
        self, account_id: AccountId, nano: Nano, *, reference: str, days: float | None = None, memo: str | None = None
    ) -> bool:
        """Promo credits from the operator. False, and nothing changes, if this reference was used before.

        Raises IdReused, as `deposit` and `fund_treasury` do, if it was used for another account or amount.
        """
        cause = f"grant:{reference}"
        return await self._post_once(self._grant(account_id, nano, cause=cause, days=days, memo=memo))

    async def deposit(self, account_id: AccountId, deposit: ConfirmedDeposit, *, adapter: str) -> bool:
        """False if it was posted before."""
        transfer = deposit_transfer(account_id, deposit, adapter=adapter, unix_s=self.clock.unix_s())
        return await self._post_once(transfer)

    async def fund_treasury(self, nano: Nano, *, reference: str) -> bool:
        """The operator declares to have put so much aside for promo income."""
        lines = rules.treasury_postings(checked_transfer_nano(nano))
        return await self._post_once(self._transfer(f"fund:{reference}", "treasury", NETWORK_ACCOUNT, nano, lines))

    async def fund_rewards(self, nano: Nano, *, reference: str) -> bool:
        """The operator declares to have put so much aside for the next eras' rewards."""
        lines = rules.reward_deposit_postings(checked_transfer_nano(nano))
        return await self._post_once(self._transfer(f"rewards:{reference}", "rewards", NETWORK_ACCOUNT, nano, lines))

    async def _post_once(self, transfer: Transfer) -> bool:
        if await self.books.post_transfer(transfer):
            return True
        if await self.books.find_transfer(transfer.cause) != (transfer.account_id, transfer.nano):
            raise IdReused(
                "This id was used before, for another account or amount, so nothing was done. Choose another id.",
                param="id",
            )
        return False

    def _grant(
        self, account_id: AccountId, nano: Nano, *, cause: str, days: float | None = None, memo: str | None = None
    ) -> Transfer:
        lines = rules.grant_postings(account_id, checked_transfer_nano(nano))
        transfer = self._transfer(cause, "grant", account_id, nano, lines)
        life_s = (self.rules.promo_days if days is None else days) * _DAY_S
        return replace(transfer, expires_unix_s=transfer.unix_s + life_s, memo=memo)

    def _transfer(self, cause: str, kind: str, account_id: AccountId, nano: Nano, lines: list[Posting]) -> Transfer:
        return Transfer(cause, kind, account_id, nano, tuple(lines), self.clock.unix_s())

    # reads

    async def balance(self, account_id: AccountId) -> Balance:
        promo, paid = chart.promo_of(account_id), chart.credits_of(account_id)
        balances = await self.books.balances([promo, paid])
        totals = await self.books.transfer_totals(account_id)
        now = self.clock.unix_s()
        return Balance(
            promo=balances[promo],
            paid=balances[paid],
            reserved=await self.books.reserved([promo, paid]),
            granted=totals.get("grant", Nano(0)),
            deposited=totals.get("deposit", Nano(0)),
            expired=totals.get("expire", Nano(0)),
            credited=totals.get("uptime_credit", Nano(0)),
            moved=Nano(totals.get("convert", 0) + totals.get("exit", 0)),
            promo_ends_unix_s=await self.books.promo_ends_at(account_id, now_unix_s=now) if balances[promo] else None,
        )

    async def treasury(self) -> TreasuryStatus:
        balances = await self.books.balances([chart.TREASURY])
        redeemed = await self.books.redeemed_since(period_start("day", self.clock.unix_s()))
        return TreasuryStatus(balances[chart.TREASURY], self.rules.treasury_daily, redeemed)

    # chores: every gateway runs them; compare-and-set makes each transfer happen once

    async def expire(self) -> Nano:
        """Take back expired promo credits, except what gateways have reserved. Returns how much."""
        now, taken = self.clock.unix_s(), 0
        for name, balance, unexpired, reserved in await self.books.promo_to_expire(now_unix_s=now):
            nano = rules.expired_promo(balance, [unexpired], reserved=reserved)
            if nano > 0 and await self._expire(name, nano, balance=balance, now=now):
                taken += nano
        return Nano(taken)

    async def _expire(self, name: str, nano: Nano, *, balance: int, now: float) -> bool:
        account_id = AccountId(name.removeprefix(chart.promo_of(AccountId(""))))
        lines = rules.expiry_postings(account_id, nano)
        transfer = self._transfer(f"expire:{account_id}:{now:.3f}:{balance}", "expire", account_id, nano, lines)
        try:
            return await self.books.post_if_unchanged(transfer, standing={name: balance})
        except InsufficientCredits:  # a gateway has just reserved it: it expires in a later round
            return False

    async def redeem(self) -> Nano:
        """Make promo income payable, within the treasury's budget, in proportion to what is owed. Returns how much."""
        now, treasury = self.clock.unix_s(), await self.treasury()
        allowance = rules.treasury_allowance(
            daily=treasury.daily,
            day_part=(now - period_start("day", now)) / _DAY_S,
            redeemed_today=treasury.redeemed_today,
            treasury=treasury.balance,
        )
        if not allowance:
            return Nano(0)
        owed = await self.books.promo_incomes(limit=OWNERS_PER_REDEMPTION)
        left = treasury.balance
        for owner, nano in sorted(rules.pro_rata_shares(owed, allowance).items()):
            if not await self._redeem(owner, nano, left=left, now=now):
                break  # another gateway redeems at the same time
            left = Nano(left - nano)
        return Nano(treasury.balance - left)

    async def _redeem(self, owner: AccountId, nano: Nano, *, left: Nano, now: float) -> bool:
        lines = rules.redemption_postings(owner, nano)
        transfer = self._transfer(f"redeem:{owner}:{now:.3f}:{left}", "redeem", owner, nano, lines)
        return await self.books.post_if_unchanged(transfer, standing={chart.TREASURY: left})


def _digest(address: str) -> bytes:
    """Grants are counted by digest, so that no address is stored."""
    return hashlib.sha256(b"sparewatt grants " + client_network(address).encode()).digest()
