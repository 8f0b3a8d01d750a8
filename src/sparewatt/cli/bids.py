"""`sparewatt bids watch ORDER`: an order's auction, line by line, until it is decided."""

from __future__ import annotations

import time
from collections.abc import Iterator

import click

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient, ApiReply, path_of, path_with_query
from sparewatt.cli.context import network_options
from sparewatt.cli.errors import ApiError, ExitCode, NoReply
from sparewatt.cli.groups import DefaultGroup, examples
from sparewatt.cli.output import Column, left, right
from sparewatt.protocol.api.lease_match import LeaseMatch, MatchBid, MatchPhaseName

WAIT_MS = 5_000
LOOKS_MAX = 720
"""Of five seconds each: an hour."""
SILENT_LOOKS_MAX, SILENT_PAUSE_S, UNAVAILABLE = 60, 1.0, 503
"""How long a gateway that has answered once may be away: longer than it takes to start."""
SETTLE_MS, SETTLE_LOOKS = 500, 4
"""The chain may decide before the gateway has collected the bids that the certificate counts."""
DECIDED: frozenset[MatchPhaseName] = frozenset({"matched", "unmatched", "over"})
ID_CHARS = 18
_PHASES: dict[MatchPhaseName, str] = {
    "commit": "sealed bids come in",
    "reveal": "bids are revealed",
    "vote": "validators vote",
    "certified": "a quorum has signed; the chain does not have it yet",
    "matched": "the chain has the certificate",
    "unmatched": "nobody won",
    "over": "the order has ended",
}


@click.group(cls=DefaultGroup, default="watch")
@examples("sparewatt bids watch ORDER", "sparewatt bids watch ORDER --json")
def bids() -> None:
    """Watch who bids on an order, who declines, how validators vote, and who wins."""


@bids.command("watch")
@click.argument("order")
@click.option("--attempt", type=click.IntRange(min=0), help="Of an order with several auctions; the newest by default.")
@network_options
@examples("sparewatt bids watch ORDER", "sparewatt bids watch ORDER --attempt 0", "sparewatt bids watch ORDER --json")
def watch(client: ApiClient, *, order: str, attempt: int | None, as_json: bool) -> None:
    """Follow the auction of ORDER (its id, or a lease's id or name of yours) until it is decided.

    With --json every change is one line. Exit code 5 if nobody won.
    """
    last: LeaseMatch | None = None
    for reply, match in _changes(client, order, attempt):
        if as_json:
            output.print_lines([reply])
        else:
            output.print_lines(news_of(last, match))
        last = match
    if last is not None and last.phase.name in DECIDED:
        if not as_json:
            _print_result(last)
        if last.phase.name != "matched":
            raise click.exceptions.Exit(ExitCode.NO_MATCH)


def _changes(client: ApiClient, order: str, attempt: int | None) -> Iterator[tuple[str, LeaseMatch]]:
    """Each version of the match, as JSON and decoded, up to the one that decides it."""
    have = settling = 0
    for _ in range(LOOKS_MAX):
        wait_ms = SETTLE_MS if settling else WAIT_MS
        query = {"attempt": attempt, "have": have or None, "wait_ms": wait_ms if have else None}
        path = path_with_query(path_of("leases", order, "match"), query)
        reply = _get_patiently(client, path) if have else client.get(path)
        match = reply.parse(LeaseMatch)
        if match.version != have:
            yield reply.body.decode(errors="replace").strip(), match
        have, attempt = match.version, match.attempt
        if match.phase.name in DECIDED:
            settling += 1
            if not unseen_bids(match) or settling > SETTLE_LOOKS:
                return


def _get_patiently(client: ApiClient, path: str) -> ApiReply:
    """An auction goes on while a gateway is started again; so does who watches it."""
    for look in range(SILENT_LOOKS_MAX):
        try:
            return client.get(path)
        except NoReply as error:
            if look == 0:
                output.note(f"{error.message} The auction goes on without it; asking again.")
        except ApiError as error:
            if error.http_status != UNAVAILABLE:
                raise
        time.sleep(SILENT_PAUSE_S)
    return client.get(path)


def unseen_bids(match: LeaseMatch) -> int:
    """Bids that the certificate counts and the gateway has not collected."""
    return 0 if match.certificate is None else max(0, match.certificate.bid_count - match.counts.revealed)


def news_of(before: LeaseMatch | None, match: LeaseMatch) -> list[str]:
    """What changed, in lines."""
    lines = []
    if before is None:
        most = output.format_usd(match.order.max_hourly_usd)
        lines.append(f"Order {match.order.id}, attempt {match.attempt}: at most {most} an hour.")
    if before is None or before.phase.name != match.phase.name:
        left_ms = match.phase.ends_in_ms
        left_text = f" ({left_ms / 1_000:.1f} s left)" if left_ms else ""
        lines.append(f"{match.phase.name}: {_PHASES[match.phase.name]}{left_text}")
    known = {(bid.provider, bid.state) for bid in before.bids} if before is not None else set()
    lines += [_bid_line(bid) for bid in match.bids if (bid.provider, bid.state) not in known]
    declined = {each.provider for each in before.declines} if before is not None else set()
    lines += [f"  {each.provider} declines: {each.reason}" for each in match.declines if each.provider not in declined]
    voted = {(each.validator, each.round) for each in before.votes} if before is not None else set()
    lines += [
        f"  validator {each.validator} votes in round {each.round}"
        for each in match.votes
        if (each.validator, each.round) not in voted
    ]
    troubles = {(each.vote_key, each.problem) for each in before.voters} if before is not None else set()
    lines += [
        f"  validator {each.vote_key}: {each.problem}"
        for each in match.voters
        if each.problem is not None and (each.vote_key, each.problem) not in troubles
    ]
    return lines


def _bid_line(bid: MatchBid) -> str:
    price = "" if bid.price_usd is None else f" at {output.format_usd(bid.price_usd)} an hour"
    reason = "" if bid.reason is None else f" ({bid.reason})"
    return f"  {bid.provider}{price}: {bid.state}{reason}"


def _print_result(match: LeaseMatch) -> None:
    columns: list[Column[MatchBid]] = [
        right("#", lambda bid: output.UNKNOWN if bid.rank is None else str(bid.rank)),
        left("PROVIDER", lambda bid: bid.provider[:ID_CHARS]),
        right("PER HOUR", lambda bid: output.format_usd(bid.price_usd)),
        right("RTT", lambda bid: output.UNKNOWN if bid.score is None else f"{bid.score.rtt_ms} ms"),
        right("P(OK)", lambda bid: output.UNKNOWN if bid.score is None else f"{bid.score.p_ok_ppm / 10_000:.2f} %"),
        right("SCORE", lambda bid: output.UNKNOWN if bid.score is None else bid.score.score),
        left("", lambda bid: bid.state if bid.reason is None else f"{bid.state} ({bid.reason})"),
    ]
    if match.bids:
        output.print_table(columns, match.bids)
    if unseen := unseen_bids(match):
        bids = "1 bid" if unseen == 1 else f"{unseen} bids"
        output.note(
            f"The certificate counts {bids} that this gateway has not seen. A validator's record has them: "
            f"sparewatt validator replay {match.order.id} --attempt {match.attempt} --from URL; 'sparewatt market "
            "validators' lists their URLs."
        )
    certificate = match.certificate
    if certificate is not None and certificate.candidates:
        pay = output.format_usd(certificate.pay_usd)
        signers = f"{len(certificate.signers)} validators signed"
        output.print_lines([f"{certificate.candidates[0].provider} has it, for {pay} an hour; {signers}."])
    if match.why is not None:
        output.print_lines([match.why])
    output.print_lines(f"  {each.field} {each.value} would admit {each.providers} more." for each in match.relaxations)
