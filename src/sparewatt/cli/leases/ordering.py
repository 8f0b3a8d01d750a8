"""Sends an order once, whatever happens to the connection, and follows it to its end.

The id of a request makes it idempotent: a gateway that went away before it answered may have taken the order, so the
same is asked again under the same id, and a user who gives up learns the id.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient, ApiReply, path_of
from sparewatt.cli.errors import ApiError, CliError, ExitCode, NoReply
from sparewatt.cli.leases.lease_view import print_leases
from sparewatt.cli.leases.order_options import OrderDraft
from sparewatt.cli.leases.progress import OrderFollower, OrderProgress
from sparewatt.protocol.api.lease_access import LeaseSite
from sparewatt.protocol.api.leases import Lease, LeaseCreated, LeaseQuote

FOLLOW_S = 180.0
"""Several attempts of a local network, one of a public one."""
RESEND_S, RESEND_PAUSE_S = 60.0, 1.0
"""How long an order without an answer is asked for again: longer than a gateway takes to start."""
STARTED_BY_PROVIDER = "The provider starts the container now; 'sparewatt lease show' says when it runs."
UNAVAILABLE = 503


OnMatched = Callable[[list[Lease]], None]


def send_order(
    client: ApiClient,
    draft: OrderDraft,
    quote: LeaseQuote,
    *,
    reference: str,
    waits: bool,
    as_json: bool,
    on_matched: OnMatched | None = None,
    public_port: int | None = None,
) -> None:
    """`on_matched`: what is done with the leases that have found a provider."""
    if quote.max_hourly_usd is not None:
        draft.set_policy("max_hourly", quote.max_hourly_usd)
    again = f"'sparewatt lease list' shows whether it was. The same command with --id {reference}" + (
        f" --max-hourly {quote.max_hourly_usd} orders it once." if quote.max_hourly_usd else " orders it once."
    )
    try:
        reply, is_repeated = _post_once(client, {**draft.fields, "id": reference}, again=again)
    except KeyboardInterrupt:
        output.note(f"The order may have been sent. {again}")
        raise
    except ApiError as error:
        raise draft.locate(error) from None
    created = reply.parse(LeaseCreated)
    if public_port is not None:
        _publish(client, created, public_port)
    if not waits:
        reply.show(LeaseCreated, lambda made: print_leases(made.leases), as_json=as_json)
        return
    if not as_json:
        is_ours = created.created or is_repeated
        sent = "Order sent" if is_ours else "This id was sent before; nothing new was ordered"
        output.print_lines([f"   0.0 s  {sent}: {', '.join(each.id for each in created.leases)}"])
    offered = {each.provider: Decimal(each.hourly_usd) for each in quote.offers}
    follow_orders(client, created.leases, offered=offered, as_json=as_json, on_matched=on_matched)


def _publish(client: ApiClient, created: LeaseCreated, port: int) -> None:
    """The order stands, whatever becomes of its public address."""
    for each in created.leases:
        try:
            site = client.post(path_of("leases", each.id, "site"), {"port": port}).parse(LeaseSite)
            output.note(f"Public address: {site.url}")
        except ApiError as error:
            output.note(f"No public address: {error.message}")


def _post_once(client: ApiClient, body: Mapping[str, Any], *, again: str) -> tuple[ApiReply, bool]:
    """The reply, and whether it was asked for more than once."""
    lost: NoReply | None = None
    give_up_s = time.monotonic() + RESEND_S
    while True:
        try:
            return client.post("/leases", body), lost is not None
        except NoReply as error:
            if lost is None:
                output.note(f"{error.message} The order is sent again under the same id, so it is made once.")
            lost = error
        except ApiError as error:
            if lost is None or error.http_status != UNAVAILABLE:
                raise
        if time.monotonic() > give_up_s:
            raise CliError(f"{lost.message} It is not known whether the order was taken.", next_step=again)
        time.sleep(RESEND_PAUSE_S)


def follow_orders(
    client: ApiClient,
    leases: list[Lease],
    *,
    offered: Mapping[str, Decimal] | None = None,
    as_json: bool,
    on_matched: OnMatched | None = None,
) -> None:
    """`offered`: what each provider's standing offer was."""

    def say(line: str) -> None:
        if not as_json:
            output.print_lines([line])

    follower = OrderFollower(client, say, time.monotonic, time.sleep, FOLLOW_S, warn=output.note)
    try:
        ended = follower.follow(leases)
    except KeyboardInterrupt:
        output.note(_goes_on(leases))
        raise
    if on_matched is not None:
        on_matched([each.lease for each in ended if each.is_matched])
    _conclude(ended, offered or {}, as_json=as_json)


def _goes_on(leases: list[Lease]) -> str:
    several = " ".join(each.id for each in leases[1:])
    return (
        f"The order goes on without you. Follow it: sparewatt lease follow {leases[0].id}. Withdraw it: sparewatt "
        f"lease cancel {leases[0].id}." + (f" The others are {several}." if several else "")
    )


def _conclude(ended: list[OrderProgress], offered: Mapping[str, Decimal], *, as_json: bool) -> None:
    if as_json:
        import msgspec

        output.print_json({"leases": msgspec.to_builtins([each.lease for each in ended])})
    else:
        _print_ends(ended)
    for each in ended:
        if (remark := dearer_than_offered(each, offered)) is not None:
            output.note(remark)
    if all(each.is_matched for each in ended):
        return
    phases = {each.lease.phase for each in ended}
    raise SystemExit(ExitCode.NO_MATCH if phases & {"unmatched", "expired"} else ExitCode.FAILURE)


def _print_ends(ended: list[OrderProgress]) -> None:
    matched = [each.lease for each in ended if each.is_matched]
    if matched:
        which = matched[0].id if len(matched) == 1 else f"{matched[0].name} --all"
        output.note(f"{STARTED_BY_PROVIDER} 'sparewatt lease close {which}' gives the rest of the deposit back.")
    for each in ended:
        if not each.is_over:
            output.note(f"It is not decided yet. 'sparewatt lease follow {each.lease.id}' goes on.")
    if any(each.is_over and each.lease.phase in {"unmatched", "expired"} for each in ended):
        output.note("Nothing was charged for what found nobody: the deposit comes back to your credits.")


def dearer_than_offered(each: OrderProgress, offered: Mapping[str, Decimal]) -> str | None:
    """An offer binds nobody: a provider may show a low price to be chosen, and bid a higher one."""
    won = next((bid for bid in each.match.bids if bid.state == "won"), None) if each.match is not None else None
    offer = None if won is None else offered.get(won.provider)
    if won is None or won.price_usd is None or offer is None or Decimal(won.price_usd) <= offer:
        return None
    return (
        f"WARNING {won.provider} offered this for {output.format_usd(offer)} an hour and bid "
        f"{output.format_usd(won.price_usd)}. 'sparewatt lease close {each.lease.id}' ends it; the policy's 'ignore' "
        "keeps it out of the next order."
    )
