"""`sparewatt credits` and `treasury`: what an account has to spend, and what pays for serving free credits."""

from __future__ import annotations

import time

import click

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient, ApiReply, path_with_query
from sparewatt.cli.context import network_options
from sparewatt.cli.groups import DefaultGroup, examples
from sparewatt.cli.money.statements import NEGATIVE_IS_NO_OPTION, account_option, amount_body
from sparewatt.cli.output import Fact
from sparewatt.cli.param_types import ADDRESS, NUMBER
from sparewatt.core.money import format_usd
from sparewatt.protocol.api.credits import (
    ChainHoldingsInfo,
    Collected,
    CreditBalance,
    CreditBalanceReply,
    CreditPosting,
    TreasuryBalance,
    TreasuryPosting,
    TreasuryReply,
    Withdrawal,
)

id_option = click.option("--id", "reference", metavar="ID", help="An idempotency key: the same one twice is done once.")


@click.group("credits", cls=DefaultGroup, default="balance")
@examples("sparewatt credits", "sparewatt credits deposit 5")
def credits_() -> None:
    """Show what you have to spend, and get more."""


@credits_.command("balance")
@account_option
@network_options
@examples("sparewatt credits balance")
def balance(client: ApiClient, *, account: str | None, as_json: bool) -> None:
    """Show your credits: free ones, which are spent first, and paid ones."""
    reply = client.get(path_with_query("/credits", {"account": account}))
    reply.show(CreditBalanceReply, _print_balance, as_json=as_json)


@credits_.command("grant", context_settings=NEGATIVE_IS_NO_OPTION)
@click.argument("account", metavar="ID_OR_EMAIL")
@click.argument("usd", metavar="USD")
@click.option("--days", type=NUMBER, help="How long they last.  [default: the network's setting]")
@click.option("--memo", help="The reason, stored with it.")
@id_option
@network_options
@examples("sparewatt credits grant ann@example.com 5 --days 30 --id welcome-ann")
def grant(
    client: ApiClient,
    *,
    account: str,
    usd: str,
    days: float | None,
    memo: str | None,
    reference: str | None,
    as_json: bool,
) -> None:
    """Give an account free credits. For operators."""
    body = amount_body(usd, reference=reference) | {"account": account, "days": days, "memo": memo}
    _report(client.post("/credits/grant", body), f"Granted {_amount(usd)}.", as_json=as_json)


@credits_.command("deposit", context_settings=NEGATIVE_IS_NO_OPTION)
@click.argument("usd", metavar="USD")
@click.option("--by", "adapter", default="test", show_default=True, help="The payment adapter.")
@id_option
@network_options
@examples("sparewatt credits deposit 5", "sparewatt credits deposit 5 --by chain")
def deposit(client: ApiClient, *, usd: str, adapter: str, reference: str | None, as_json: bool) -> None:
    """Add paid credits to your account. On a network of your own, test money is enough.

    With --by chain they come out of your account's address on the network's chain, into its settlement contract.
    """
    if adapter == "chain":
        _announce("Depositing on the chain …", as_json=as_json)
    body = amount_body(usd, reference=reference) | {"adapter": adapter}
    _report(client.post("/credits/deposit", body), f"Deposited {_amount(usd)}.", as_json=as_json)


@credits_.command("withdraw", context_settings=NEGATIVE_IS_NO_OPTION)
@click.argument("usd", metavar="USD")
@click.option("--to", type=ADDRESS, help="Where the tokens go.  [default: your account's address]")
@id_option
@network_options
@examples("sparewatt credits withdraw 5 --to 0x4b31f0…")
def withdraw(client: ApiClient, *, usd: str, to: str | None, reference: str | None, as_json: bool) -> None:
    """Withdraw paid credits that you deposited on the chain. Free ones stay.

    The settlement contract pays after its delay. Until then the amount is held: it can be spent no more.
    """
    _announce("Asking the settlement contract …", as_json=as_json)
    body = amount_body(usd, reference=reference) | {"to": to}
    reply = client.post("/credits/withdraw", body)
    reply.show(Withdrawal, lambda withdrawal: _print_withdrawal(withdrawal, asked=_amount(usd)), as_json=as_json)


@credits_.command("collect")
@id_option
@network_options
@examples("sparewatt credits collect")
def collect(client: ApiClient, *, reference: str | None, as_json: bool) -> None:
    """Bring what contracts owe you (refunds, pay, bonds), and the tokens at your address, back to your credits."""

    def show(collected: Collected) -> None:
        output.note("Brought back to your credits." if collected.tx else "There was nothing to bring back.")

    _announce("Asking the contracts …", as_json=as_json)
    client.post("/credits/collect", {"id": reference}).show(Collected, show, as_json=as_json)


def _announce(text: str, *, as_json: bool) -> None:
    if not as_json:
        output.note(text)


def _print_withdrawal(withdrawal: Withdrawal, *, asked: str) -> None:
    wait, paid = format_time_left(max(0.0, withdrawal.ready_at - time.time())), output.format_usd(withdrawal.usd)
    output.print_lines([f"{paid} will be paid to {withdrawal.to} {wait}."])
    if paid != asked:
        output.note("That is all that you deposited on this chain and have not spent; the rest cannot leave by it.")


def _amount(usd: str) -> str:
    return output.format_usd(usd.removeprefix("$"))


def _report(reply: ApiReply, text: str, *, as_json: bool) -> None:
    def show(posting: CreditPosting) -> None:
        result = text if posting.posted else "Done before, nothing changed."
        balance = output.format_usd(posting.credits.balance_usd)
        output.print_lines([f"{result} {posting.account} now has {balance}."])

    reply.show(CreditPosting, show, as_json=as_json)


def format_time_left(seconds: float) -> str:
    """In days from two on, else in hours."""
    hours = int(seconds // 3600)
    if hours >= 48:
        return f"in {round(hours / 24)} days"
    return f"in {hours} hour{'s' if hours > 1 else ''}" if hours >= 1 else "within the hour"


def _print_balance(reply: CreditBalanceReply) -> None:
    output.print_facts(_facts(reply.data))
    if reply.data.balance_usd == "0":
        output.note("Nothing left to spend. 'sparewatt credits deposit USD' adds some, or ask the network's operator.")


def _facts(credit: CreditBalance) -> list[Fact]:
    ends_at = credit.promo_expires_at
    expiry = "" if ends_at is None else f", the next expire {format_time_left(ends_at - time.time())}"
    return [
        ("Balance", f"${credit.balance_usd}"),
        ("Free", f"${credit.promo_usd} (spent first{expiry})"),
        ("Paid", f"${credit.paid_usd}"),
        ("Reserved", f"{output.format_usd(_reserved_usd(credit))} of it, by gateways for your requests"),
        ("Spent", f"{output.format_usd(bytes(credit.total_usage).decode())} on answers so far"),
        *_chain_facts(credit.chain),
    ]


def _reserved_usd(credit: CreditBalance) -> str:
    """Without what has a line of its own below."""
    apart = 0 if credit.chain is None else credit.chain.held_nano + credit.chain.exits_nano
    return format_usd(max(0, credit.reserved_nano - apart))


def _chain_facts(chain: ChainHoldingsInfo | None) -> list[Fact]:
    """What is not zero of it."""
    if chain is None:
        return []
    facts = [
        ("In leases", chain.escrow_usd, "deposits in escrow"),
        ("In bonds", chain.bonds_usd, "of your nodes"),
        ("Owed to you", chain.owed_usd, "by contracts; 'sparewatt credits collect' brings it back"),
        ("Tokens", chain.wallet_usd, f"at {chain.address}"),
        ("Held", chain.held_usd, "of your credits, for leases and bonds you asked for"),
        ("Withdrawing", chain.exits_usd, f"of your credits, {_payment(chain)}; it can be spent no more"),
    ]
    return [(name, f"{output.format_usd(usd)} {what}") for name, usd, what in facts if usd != "0"]


def _payment(chain: ChainHoldingsInfo) -> str:
    """When a withdrawal is paid."""
    if chain.exits_ready_at is None:
        return "on its way to the contract"
    left_s = chain.exits_ready_at - time.time()
    return f"to be paid {format_time_left(left_s)}" if left_s > 0 else "being paid now"


@click.group(cls=DefaultGroup, default="show")
@examples("sparewatt treasury", "sparewatt treasury fund 100")
def treasury() -> None:
    """Show or fund the treasury, which pays node owners for serving free credits."""


@treasury.command("show")
@network_options
@examples("sparewatt treasury show")
def show(client: ApiClient, *, as_json: bool) -> None:
    """Show what is there, and how much of it becomes payable per day."""
    client.get("/treasury").show(TreasuryReply, _print_treasury, as_json=as_json)


@treasury.command("fund", context_settings=NEGATIVE_IS_NO_OPTION)
@click.argument("usd", metavar="USD")
@id_option
@network_options
@examples("sparewatt treasury fund 100 --id november")
def fund(client: ApiClient, *, usd: str, reference: str | None, as_json: bool) -> None:
    """Put money aside for owners who serve free credits. For operators."""
    reply = client.post("/treasury/fund", amount_body(usd, reference=reference))
    reply.show(TreasuryPosting, _print_funding, as_json=as_json)


def _print_treasury(reply: TreasuryReply) -> None:
    _print_treasury_balance(reply.data)
    if reply.data.balance_usd == "0":
        output.note("Empty: promo income stays unpaid until an operator runs 'sparewatt treasury fund USD'.")


def _print_funding(posting: TreasuryPosting) -> None:
    output.note("Funded." if posting.posted else "Done before, nothing changed.")
    _print_treasury_balance(posting.treasury)


def _print_treasury_balance(balance: TreasuryBalance) -> None:
    output.print_facts(
        [
            ("Treasury", output.format_usd(balance.balance_usd)),
            ("Per day", f"at most {output.format_usd(balance.daily_budget_usd)} becomes payable"),
            ("Today", f"{output.format_usd(balance.redeemed_today_usd)} so far"),
        ]
    )
