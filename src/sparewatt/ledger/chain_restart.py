"""What becomes of money on a chain that is started over, where it is test money. Pure.

What an account had in wallets, escrow and bonds, and what contracts owed it, becomes credits; the part that came from
promo credits becomes promo credits. Payouts that were not claimed are earnings again, for the first batch of the new
chain. What was claimed is in the wallets, or has left.
"""

from __future__ import annotations

from collections.abc import Mapping

from sparewatt.core.ids import NETWORK_ACCOUNT, AccountId
from sparewatt.core.money import Nano
from sparewatt.ledger import chart
from sparewatt.ledger.payouts import NANO_PER_MICRO
from sparewatt.store.chain_restarts import MoneyOnChain
from sparewatt.store.ledger import Posting, Transfer

KIND = "chain_restart"
POCKETS = ("wallet", "escrow", "bond", "owed")


def restart_transfers(number: int, money: MoneyOnChain, unix_s: float) -> list[Transfer]:
    """One transfer for each account that had something, and one for what is left in the account of payouts."""
    by_account = _pockets_by_account(money.balances)
    accounts = sorted({*by_account, *money.unclaimed, *money.unbooked})
    left, transfers = money.balances.get(chart.PAYOUTS, 0), []
    for account in accounts:
        unclaimed = min(max(0, left), money.unclaimed.get(account, 0) * NANO_PER_MICRO)
        left -= unclaimed
        unbooked = max(0, money.unbooked.get(account, 0)) * NANO_PER_MICRO
        lines = _lines(account, by_account.get(account, {}), unbooked=unbooked, unclaimed=unclaimed)
        transfers += _transfer(number, account, lines, unix_s)
    rest: list[Posting] = [(chart.PAYOUTS, -left), (chart.DEPOSITS, left)]
    return transfers + _transfer(number, NETWORK_ACCOUNT, rest, unix_s, cause=f"restart:{number}:payouts")


def _pockets_by_account(balances: Mapping[str, int]) -> dict[AccountId, dict[str, int]]:
    found: dict[AccountId, dict[str, int]] = {}
    for name, nano in balances.items():
        kind, _, account = name.partition(":")
        if kind in POCKETS or kind == "given":
            found.setdefault(AccountId(account), {})[kind] = nano
    return found


def _lines(account: AccountId, pockets: Mapping[str, int], *, unbooked: int, unclaimed: int) -> list[Posting]:
    in_pockets = {kind: nano for kind, nano in pockets.items() if kind != "given"}
    back, given = sum(in_pockets.values()) + unbooked, pockets.get("given", 0)
    promo = max(0, min(back, given))
    return [
        *((chart.pocket_of(kind, account), -nano) for kind, nano in in_pockets.items()),
        (chart.DEPOSITS, promo - unbooked),
        (chart.credits_of(account), back - promo),
        (chart.promo_of(account), promo),
        (chart.given_to(account), -given),
        (chart.GRANTS, given - promo),
        (chart.PAYOUTS, -unclaimed),
        (chart.earned_by(account), unclaimed),
    ]


def _transfer(
    number: int, account: AccountId, lines: list[Posting], unix_s: float, *, cause: str | None = None
) -> list[Transfer]:
    moving = tuple((name, nano) for name, nano in lines if nano)
    moved = sum(nano for _, nano in moving if nano > 0)
    if not moved:
        return []
    return [Transfer(cause or f"restart:{number}:{account}", KIND, account, Nano(moved), moving, unix_s)]
