"""What becomes of money on a chain that is started over, where it is test money. Pure.

What an account had in wallets, escrow and bonds, and what contracts owed it, becomes credits; the part that came from
promo credits becomes promo credits. Payouts that were not claimed are earnings again, for the first batch of the new
chain, and so are rewards. What was claimed is in the wallets, or has left.
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
    """One transfer for each account that had something, and one for what is left in the accounts of payouts."""
    by_account = _pockets_by_account(money.balances)
    accounts = sorted({*by_account, *money.unclaimed, *money.rewards, *money.unbooked})
    left = {name: money.balances.get(name, 0) for name in (chart.PAYOUTS, chart.REWARD_PAYOUTS)}
    transfers: list[Transfer] = []
    for account in accounts:
        unbooked = max(0, money.unbooked.get(account, 0)) * NANO_PER_MICRO
        lines = _lines(account, by_account.get(account, {}), unbooked=unbooked)
        for name, unclaimed in ((chart.PAYOUTS, money.unclaimed), (chart.REWARD_PAYOUTS, money.rewards)):
            again = min(max(0, left[name]), unclaimed.get(account, 0) * NANO_PER_MICRO)
            left[name] -= again
            lines += [(name, -again), (chart.earned_by(account), again)]
        transfers += _transfer(number, account, lines, unix_s)
    for name, word in ((chart.PAYOUTS, "payouts"), (chart.REWARD_PAYOUTS, "rewards")):
        rest: list[Posting] = [(name, -left[name]), (chart.DEPOSITS, left[name])]
        transfers += _transfer(number, NETWORK_ACCOUNT, rest, unix_s, cause=f"restart:{number}:{word}")
    return transfers


def _pockets_by_account(balances: Mapping[str, int]) -> dict[AccountId, dict[str, int]]:
    found: dict[AccountId, dict[str, int]] = {}
    for name, nano in balances.items():
        kind, _, account = name.partition(":")
        if kind in POCKETS or kind == "given":
            found.setdefault(AccountId(account), {})[kind] = nano
    return found


def _lines(account: AccountId, pockets: Mapping[str, int], *, unbooked: int) -> list[Posting]:
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
    ]


def _transfer(
    number: int, account: AccountId, lines: list[Posting], unix_s: float, *, cause: str | None = None
) -> list[Transfer]:
    sums: dict[str, int] = {}
    for name, nano in lines:
        sums[name] = sums.get(name, 0) + nano
    moving = tuple((name, nano) for name, nano in sums.items() if nano)
    moved = sum(nano for _, nano in moving if nano > 0)
    if not moved:
        return []
    return [Transfer(cause or f"restart:{number}:{account}", KIND, account, Nano(moved), moving, unix_s)]
