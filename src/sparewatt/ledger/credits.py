"""Credits: given, bought, run out, and what turns promo income into payable income. A service over the books.

Every step has a cause that makes it happen once. Who may ask for which is decided by the routes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from sparewatt.accounts.public_rate_limits import client_network
from sparewatt.core.clock import Clock
from sparewatt.core.errors import IdReused, InsufficientCredits, InvalidField
from sparewatt.core.ids import NETWORK_ACCOUNT, AccountId
from sparewatt.core.limits import OWNERS_REDEEMED_AT_ONCE, TRANSFER_NANO_MAX
from sparewatt.core.log import Logger
from sparewatt.core.money import Nano, format_usd
from sparewatt.ledger import chart, rules
from sparewatt.ledger.budgets import period_start
from sparewatt.ledger.deposit_adapters import ConfirmedDeposit
from sparewatt.ledger.model import Posting
from sparewatt.store.ledger import LedgerStore, Transfer

_log = Logger("sparewatt.ledger")
_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class CreditRules:
    """What the operator decides about free money."""

    signup: Nano
    promo_days: float
    grants_per_address_day: int
    treasury_daily: Nano
    """What of the treasury may become payable per day."""


@dataclass(frozen=True, slots=True)
class Balance:
    """What an account has. Reserved money is in it: gateways hold it for requests that run or may come."""

    promo: Nano
    paid: Nano
    reserved: Nano
    granted: Nano
    deposited: Nano
    expired: Nano
    promo_ends_unix_s: float | None

    @property
    def total(self) -> Nano:
        return Nano(self.promo + self.paid)

    @property
    def received(self) -> Nano:
        return Nano(self.granted + self.deposited - self.expired)

    @property
    def spent(self) -> Nano:
        return Nano(self.received - self.total)


@dataclass(frozen=True, slots=True)
class TreasuryStatus:
    balance: Nano
    daily: Nano
    redeemed_today: Nano


def checked_transfer_nano(nano: int) -> Nano:
    """An amount that may be moved at once. Raises InvalidField."""
    if nano <= 0:
        raise InvalidField("The amount must be more than $0.", param="usd")
    if nano > TRANSFER_NANO_MAX:
        raise InvalidField(
            f"At most ${format_usd(TRANSFER_NANO_MAX)} can be moved at a time. Move it in parts.", param="usd"
        )
    return Nano(nano)


def deposit_transfer(account_id: AccountId, arrival: ConfirmedDeposit, *, adapter: str, unix_s: float) -> Transfer:
    """What came in, under the name that lets it happen once. Raises InvalidField for what cannot be moved at once."""
    lines = tuple(rules.deposit_postings(account_id, checked_transfer_nano(arrival.nano)))
    return Transfer(f"deposit:{adapter}:{arrival.reference}", "deposit", account_id, arrival.nano, lines, unix_s)


GRANT_WITHHELD = (
    "No free credits came with this account: others have signed up from your address today. "
    "Deposit some, or ask the network's operator for a grant."
)


class CreditService:
    def __init__(self, books: LedgerStore, *, rules: CreditRules, clock: Clock) -> None:
        self._books = books
        self._rules = rules
        self._clock = clock

    # in

    async def on_signup(self, account_id: AccountId, *, address: str) -> str | None:
        """Free credits for somebody new, unless this address has had its share of them today: then it is told so."""
        if not self._rules.signup:
            return None
        grant = self._grant(account_id, self._rules.signup, cause=f"signup:{account_id}")
        limit = self._rules.grants_per_address_day
        if not await self._books.post_within_daily_limit(grant, who=_digest(address), per_day=limit):
            _log.info("signup_grant_withheld", account=account_id)
            return GRANT_WITHHELD
        return None

    async def grant(
        self, account_id: AccountId, nano: Nano, *, reference: str, days: float | None = None, memo: str | None = None
    ) -> bool:
        """Free credits from the operator. False if this reference was used before: nothing changes then.

        Raises IdReused, as all that come in do, if it was used for another account or amount.
        """
        cause = f"grant:{reference}"
        return await self._post_once(self._grant(account_id, nano, cause=cause, days=days, memo=memo))

    async def deposit(self, account_id: AccountId, arrival: ConfirmedDeposit, *, adapter: str) -> bool:
        """What came in by an adapter. False if it is in the books already."""
        return await self._post_once(
            deposit_transfer(account_id, arrival, adapter=adapter, unix_s=self._clock.unix_s())
        )

    async def fund_treasury(self, nano: Nano, *, reference: str) -> bool:
        """The operator's word that so much is there for those who served free credits."""
        lines = rules.treasury_postings(checked_transfer_nano(nano))
        return await self._post_once(self._transfer(f"fund:{reference}", "treasury", NETWORK_ACCOUNT, nano, lines))

    async def _post_once(self, transfer: Transfer) -> bool:
        """What is posted never changes, so it can be compared afterwards."""
        if await self._books.post_transfer(transfer):
            return True
        if await self._books.find_transfer(transfer.cause) != (transfer.account_id, transfer.nano):
            raise IdReused(
                "This id was used before, for another account or amount, so nothing was done. Choose another id.",
                param="id",
            )
        return False

    def _grant(
        self, account_id: AccountId, nano: Nano, *, cause: str, days: float | None = None, memo: str | None = None
    ) -> Transfer:
        life_s = (self._rules.promo_days if days is None else days) * _DAY_S
        lines = rules.grant_postings(account_id, checked_transfer_nano(nano))
        return self._transfer(cause, "grant", account_id, nano, lines, life_s=life_s, memo=memo)

    def _transfer(
        self,
        cause: str,
        kind: str,
        account_id: AccountId,
        nano: Nano,
        lines: list[Posting],
        *,
        life_s: float | None = None,
        memo: str | None = None,
    ) -> Transfer:
        now = self._clock.unix_s()
        ends = None if life_s is None else now + life_s
        return Transfer(cause, kind, account_id, nano, tuple(lines), now, expires_unix_s=ends, memo=memo)

    # looking

    async def balance(self, account_id: AccountId) -> Balance:
        promo, paid = chart.promo_of(account_id), chart.credits_of(account_id)
        held = await self._books.balances([promo, paid])
        moved = await self._books.transfer_totals(account_id)
        return Balance(
            promo=held[promo],
            paid=held[paid],
            reserved=await self._books.reserved([promo, paid]),
            granted=moved.get("grant", Nano(0)),
            deposited=moved.get("deposit", Nano(0)),
            expired=moved.get("expire", Nano(0)),
            promo_ends_unix_s=await self._books.promo_ends_at(account_id, now_unix_s=self._clock.unix_s())
            if held[promo]
            else None,
        )

    async def treasury(self) -> TreasuryStatus:
        held = await self._books.balances([chart.TREASURY])
        since = period_start("day", self._clock.unix_s())
        redeemed = await self._books.redeemed_since(since)
        return TreasuryStatus(held[chart.TREASURY], self._rules.treasury_daily, redeemed)

    # chores: each gateway runs them, and what one has done the others find done

    async def expire(self) -> Nano:
        """Take back free credits whose time is over, except what gateways hold for requests. Tells how much."""
        now, taken = self._clock.unix_s(), 0
        for name, balance, unexpired, sliced in await self._books.promo_to_expire(now_unix_s=now):
            nano = rules.expired_promo(balance, [unexpired], reserved=sliced)
            if nano > 0 and await self._expire(name, nano, balance=balance, now=now):
                taken += nano
        return Nano(taken)

    async def _expire(self, name: str, nano: Nano, *, balance: int, now: float) -> bool:
        account_id = AccountId(name.removeprefix(chart.promo_of(AccountId(""))))
        lines = rules.expiry_postings(account_id, nano)
        transfer = self._transfer(f"expire:{account_id}:{now:.3f}:{balance}", "expire", account_id, nano, lines)
        try:
            return await self._books.post_if_unchanged(transfer, standing={name: balance})
        except InsufficientCredits:  # a gateway has just reserved it; there is a next time
            return False

    async def redeem(self) -> Nano:
        """Turn promo income into payable income, within the treasury's budget, by what each is owed. Tells how much."""
        now, treasury = self._clock.unix_s(), await self.treasury()
        allowance = rules.treasury_allowance(
            daily=treasury.daily,
            day_part=(now - period_start("day", now)) / _DAY_S,
            redeemed_today=treasury.redeemed_today,
            treasury=treasury.balance,
        )
        if not allowance:
            return Nano(0)
        owed = await self._books.promo_incomes(limit=OWNERS_REDEEMED_AT_ONCE)
        left = treasury.balance
        for owner, nano in sorted(rules.pro_rata_shares(owed, allowance).items()):
            if not await self._redeem(owner, nano, left=left, now=now):
                break  # another gateway is at it
            left = Nano(left - nano)
        return Nano(treasury.balance - left)

    async def _redeem(self, owner: AccountId, nano: Nano, *, left: Nano, now: float) -> bool:
        lines = rules.redemption_postings(owner, nano)
        transfer = self._transfer(f"redeem:{owner}:{now:.3f}:{left}", "redeem", owner, nano, lines)
        return await self._books.post_if_unchanged(transfer, standing={chart.TREASURY: left})


def _digest(address: str) -> bytes:
    """Addresses are counted, not kept."""
    return hashlib.sha256(b"sparewatt grants " + client_network(address).encode()).digest()
