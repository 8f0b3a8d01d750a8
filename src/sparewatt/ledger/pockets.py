"""What a final event of the chain moves between pockets, credits and the outside, and its postings. Pure functions.

Every transfer of the token is an event of its own, so a contract's event says only what the contract owes to whom from
then on. Money on its way between the two is outside: a deposit leaves a wallet by `Transfer` and becomes credits by
`Deposited`, in one transaction of the chain. Pockets of strangers are kept as well, since a lease or a bond does not
say in every event whose it is; they have no account in the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

from sparewatt.core.ids import AccountId
from sparewatt.core.money import Nano
from sparewatt.ledger import chart
from sparewatt.ledger.payouts import NANO_PER_MICRO
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.store.credit_holds import EXIT, CreditHoldRow
from sparewatt.store.ledger import Posting, Transfer
from sparewatt.store.payouts import CREDIT_POOL_ID
from sparewatt.store.pockets import Pocket, PocketEntry, PocketKey, PocketRow, PocketView

NOBODY = "0x" + "0" * 40
"""The sender of tokens that are minted."""
MICRO_MAX = 10**15
"""A billion dollars. An event of more is not posted: sums must fit a bigint."""


@dataclass(frozen=True, slots=True)
class PocketPlace:
    pocket: Pocket
    id: str
    address: str | None
    """Whose it is; None if the event does not say."""

    @property
    def key(self) -> PocketKey:
        return self.pocket, self.id


@dataclass(frozen=True, slots=True)
class CreditsPlace:
    """The credits of the account at an address."""

    address: str


@dataclass(frozen=True, slots=True)
class PayoutsPlace:
    """Payouts that the account at an address has not claimed, of one pool."""

    address: str
    pool_id: int


class OutsidePlace(Enum):
    OUTSIDE = "outside"


OUTSIDE = OutsidePlace.OUTSIDE
Place: TypeAlias = PocketPlace | CreditsPlace | PayoutsPlace | OutsidePlace


@dataclass(frozen=True, slots=True)
class Move:
    source: Place
    target: Place
    micro: int


@dataclass(frozen=True, slots=True)
class ChainParties:
    """Addresses that no event names."""

    contracts: Collection[str]
    treasury: str
    """Gets the fee of a lease."""


# events to moves


def wallet(address: str) -> PocketPlace:
    return PocketPlace(Pocket.WALLET, address, address)


def lease(lease_id: str, renter: str | None = None) -> PocketPlace:
    return PocketPlace(Pocket.ESCROW, lease_id, renter)


def bond(provider: str) -> PocketPlace:
    return PocketPlace(Pocket.BOND, provider, provider)


def owed(event: ChainEvent, address: str) -> PocketPlace:
    return PocketPlace(Pocket.OWED, f"{event.contract}:{address}", address)


def _transferred(event: ChainEvent, parties: ChainParties, _: int) -> list[Move]:
    sender, receiver = event.args["sender"], event.args["receiver"]
    source: Place = OUTSIDE if sender == NOBODY or sender in parties.contracts else wallet(sender)
    target: Place = OUTSIDE if receiver in parties.contracts else wallet(receiver)
    return [Move(source, target, event.args["amount"])]


def _deposited(event: ChainEvent, _: ChainParties, __: int) -> list[Move]:
    return [Move(OUTSIDE, CreditsPlace(event.args["account"]), event.args["amount"])]


def _exited(event: ChainEvent, _: ChainParties, __: int) -> list[Move]:
    return [Move(CreditsPlace(event.args["account"]), OUTSIDE, event.args["amount"])]


def _claimed(event: ChainEvent, _: ChainParties, __: int) -> list[Move]:
    return [Move(PayoutsPlace(event.args["account"], event.args["pool"]), OUTSIDE, event.args["amount"])]


def _deposit_changed(event: ChainEvent, _: ChainParties, __: int) -> list[Move]:
    """The first one of a lease is its renter's; whoever tops it up gives to the renter."""
    target, args = lease(event.args["lease_id"], event.args["payer"]), event.args
    drawn = args["from_owed"]
    return [Move(owed(event, args["payer"]), target, drawn), Move(OUTSIDE, target, args["amount"] - drawn)]


def _compensated(event: ChainEvent, _: ChainParties, __: int) -> list[Move]:
    return [Move(OUTSIDE, lease(event.args["lease_id"]), event.args["amount"])]


def _settled(event: ChainEvent, parties: ChainParties, _: int) -> list[Move]:
    args, source = event.args, lease(event.args["lease_id"])
    pay = Move(source, owed(event, args["payee"]), args["amount"] - args["fee"])
    return [pay, Move(source, owed(event, parties.treasury), args["fee"])]


def _refunded(event: ChainEvent, _: ChainParties, __: int) -> list[Move]:
    payer = event.args["payer"]
    return [Move(lease(event.args["lease_id"], payer), owed(event, payer), event.args["amount"])]


def _bond_changed(event: ChainEvent, _: ChainParties, before: int) -> list[Move]:
    """It says what there is, so what moved is the difference. Other events say to whom that is owed, or sent."""
    args = event.args
    added = args["free"] + args["locked"] + args["unbonding"] - before
    place = bond(args["provider"])
    return [Move(OUTSIDE, place, added) if added > 0 else Move(place, OUTSIDE, -added)]


def _owed_more(event: ChainEvent, _: ChainParties, __: int) -> list[Move]:
    return [Move(OUTSIDE, owed(event, event.args["account"]), event.args["amount"])]


def _withdrawn(event: ChainEvent, _: ChainParties, __: int) -> list[Move]:
    return [Move(owed(event, event.args["account"]), OUTSIDE, event.args["amount"])]


_Rule: TypeAlias = Callable[[ChainEvent, ChainParties, int], list[Move]]
_RULES: Mapping[str, tuple[str, _Rule]] = {
    "token.Transfer": ("wallet", _transferred),
    "settlement.Deposited": ("deposit", _deposited),
    "settlement.Exited": ("exit", _exited),
    "settlement.Claimed": ("claim", _claimed),
    "escrow.DepositChanged": ("lease_deposit", _deposit_changed),
    "escrow.Compensated": ("compensation", _compensated),
    "escrow.Settled": ("lease_pay", _settled),
    "escrow.Refunded": ("refund", _refunded),
    "escrow.Withdrawn": ("withdraw", _withdrawn),
    "stake_registry.BondChanged": ("bond", _bond_changed),
    "stake_registry.Owed": ("owed", _owed_more),
    "stake_registry.Withdrawn": ("withdraw", _withdrawn),
    "dispute_book.Owed": ("owed", _owed_more),
    "dispute_book.Withdrawn": ("withdraw", _withdrawn),
}
"""By event: the kind of its transfer, and its rule."""
MONEY_EVENTS: Sequence[str] = tuple(_RULES)


def moves_of(event: ChainEvent, parties: ChainParties, *, bond_before: int = 0) -> list[Move]:
    """`bond_before`: what the provider of a `BondChanged` had."""
    _, rule = _RULES[f"{event.contract}.{event.event}"]
    return [move for move in rule(event, parties, bond_before) if move.micro]


def keys_of(event: ChainEvent, parties: ChainParties) -> list[PocketKey]:
    """The pockets that an event may change."""
    _, rule = _RULES[f"{event.contract}.{event.event}"]
    ends = [end for move in rule(event, parties, 0) for end in (move.source, move.target)]
    return list({end.key: None for end in ends if isinstance(end, PocketPlace)})


def addresses_of(event: ChainEvent, parties: ChainParties) -> list[str]:
    """The addresses that an event names as those of pockets, credits or payouts."""
    _, rule = _RULES[f"{event.contract}.{event.event}"]
    ends = [end for move in rule(event, parties, 0) for end in (move.source, move.target)]
    named = (end.address for end in ends if not isinstance(end, OutsidePlace))
    return list(dict.fromkeys(address for address in named if address is not None))


def is_too_large(event: ChainEvent) -> bool:
    return any(isinstance(value, int) and value > MICRO_MAX for value in event.args.values())


# moves to an entry


def entry_of(
    event: ChainEvent, event_id: str, view: PocketView, parties: ChainParties, *, unix_s: float
) -> PocketEntry:
    kind, _ = _RULES[f"{event.contract}.{event.event}"]
    before = view.rows.get((Pocket.BOND, event.args.get("provider", "")))
    moves = moves_of(event, parties, bond_before=before.micro if before else 0)
    rows = _changed_rows(moves, view)
    lines = [line for move in moves for line in _lines(move, rows, view)]
    hold = view.hold if kind == "wallet" and event.args["sender"] == NOBODY else None
    if hold is not None:
        lines += _conversion(hold, event.args["amount"] * NANO_PER_MICRO)
    lines = _net(lines + _free_credits_come_back(kind, lines, view))
    accounts = [name.partition(":")[2] for name, _ in lines if not name.startswith("network:")]
    kept = [row for row in rows.values() if _is_kept(row, view)]
    if not lines:  # an exit of nothing is over as well
        return PocketEntry(kept, [], _used_hold(event, kind, None))
    cause = f"deposit:chain:{event_id}" if kind == "deposit" else f"chain:{event_id}"
    account = AccountId(accounts[0]) if accounts else AccountId("acc_network")
    if hold is not None:
        kind, account = "convert", hold.account_id
    nano = _taken(lines, account) if hold is not None else _moved(lines)
    transfer = Transfer(cause, kind, account, Nano(nano), tuple(lines), unix_s)
    return PocketEntry(kept, [transfer], _used_hold(event, kind, hold), _exit_hold(event, kind, view))


def exit_hold_id(address: str) -> str:
    """One exit per address: a newer request replaces the one before."""
    return f"exit:{address}"


def _used_hold(event: ChainEvent, kind: str, hold: CreditHoldRow | None) -> str | None:
    """An exit ends its hold, also where the chain paid less than was asked for."""
    if kind == "exit":
        return exit_hold_id(event.args["account"])
    return None if hold is None else hold.id


def _exit_hold(event: ChainEvent, kind: str, view: PocketView) -> CreditHoldRow | None:
    owner = view.owners.get(event.args["account"]) if kind == "deposit" else None
    if owner is None:
        return None
    address = event.args["account"]
    return CreditHoldRow(exit_hold_id(address), EXIT, owner.account_id, address)


def _is_kept(row: PocketRow, view: PocketView) -> bool:
    """Of strangers' wallets nothing needs to be known."""
    owner = view.owners.get(row.address)
    return row.pocket is not Pocket.WALLET or (owner is not None and owner.is_held)


def _changed_rows(moves: Sequence[Move], view: PocketView) -> dict[PocketKey, PocketRow]:
    rows: dict[PocketKey, PocketRow] = {}
    for move in moves:
        for end, change in ((move.source, -move.micro), (move.target, move.micro)):
            if isinstance(end, PocketPlace):
                known = rows.get(end.key) or view.rows.get(end.key)
                row = known or PocketRow(end.pocket, end.id, end.address or NOBODY, 0)
                rows[end.key] = replace(row, micro=row.micro + change)
    return rows


def _lines(move: Move, rows: Mapping[PocketKey, PocketRow], view: PocketView) -> list[Posting]:
    nano = move.micro * NANO_PER_MICRO
    target = _account_of(move.target, rows, view)
    if isinstance(move.source, CreditsPlace) and move.source.address in view.owners:
        return [(target, nano), *_paid_out(view.owners[move.source.address].account_id, nano, view)]
    return [(target, nano), (_account_of(move.source, rows, view), -nano)]


def _paid_out(account: AccountId, nano: int, view: PocketView) -> list[Posting]:
    """An exit that the chain has paid. What the account did not have any more is the network's loss."""
    covered = max(0, min(nano, view.free_credits.get(account, 0)))
    return [(chart.credits_of(account), -covered), (chart.SHORTFALL, covered - nano)]


def _account_of(place: Place, rows: Mapping[PocketKey, PocketRow], view: PocketView) -> str:
    match place:
        case PocketPlace():
            owner = view.owners.get(rows[place.key].address)
            is_ours = owner is not None and owner.is_held
            return chart.pocket_of(place.pocket.value, owner.account_id) if owner and is_ours else chart.DEPOSITS
        case CreditsPlace(address):
            owner = view.owners.get(address)
            return chart.DEPOSITS if owner is None else chart.credits_of(owner.account_id)
        case PayoutsPlace(address, pool_id):
            if pool_id != CREDIT_POOL_ID:  # validators are paid as well, whose addresses no account has
                return chart.REWARD_PAYOUTS
            return chart.PAYOUTS if address in view.owners else chart.DEPOSITS
        case OutsidePlace():
            return chart.DEPOSITS


def _conversion(hold: CreditHoldRow, nano: int) -> list[Posting]:
    """Held credits became test tokens, promo credits first. What is held beyond that is free again."""
    account, promo = hold.account_id, min(nano, hold.promo_nano)
    paid = min(nano - promo, hold.paid_nano)
    credited = [(chart.credits_of(account), -paid), (chart.DEPOSITS, paid)]
    return [*credited, (chart.promo_of(account), -promo), (chart.given_to(account), promo)]


def _free_credits_come_back(kind: str, lines: Sequence[Posting], view: PocketView) -> list[Posting]:
    """Promo credits never become paid ones: what comes back of them is promo again, what a lease cost is used up.

    They come back last: as long as all of them may stand in the account's pockets, a deposit is other money.
    """
    more: list[Posting] = []
    for account, given in view.given.items():
        sums = dict(_net(lines))
        missing = max(0, given - view.on_chain.get(account, 0))
        back = min(missing, max(0, sums.get(chart.credits_of(account), 0))) if kind == "deposit" else 0
        used = min(given, max(0, -sums.get(chart.pocket_of("escrow", account), 0))) if kind == "lease_pay" else 0
        if back:
            more += [(chart.credits_of(account), -back), (chart.DEPOSITS, back)]
            more += [(chart.promo_of(account), back), (chart.given_to(account), -back)]
        if used:
            more += [(chart.given_to(account), -used), (chart.GRANTS, used)]
    return more


def _net(lines: Sequence[Posting]) -> list[Posting]:
    sums: dict[str, int] = {}
    for name, nano in lines:
        sums[name] = sums.get(name, 0) + nano
    return [(name, nano) for name, nano in sums.items() if nano]


def _taken(lines: Sequence[Posting], account: AccountId) -> int:
    """Of the account's credits."""
    names = (chart.credits_of(account), chart.promo_of(account))
    return -sum(nano for name, nano in lines if name in names)


def _moved(lines: Sequence[Posting]) -> int:
    return sum(nano for _, nano in lines if nano > 0)
