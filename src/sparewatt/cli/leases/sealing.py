"""Seals secrets on the renter's machine to the candidates of a match, after checking who they are, and sends the bytes.

Who the candidates are is taken from what validators signed, fetched from them, and with a chain of the renter's choice
also from the contracts. The gateway sees names and sealed bytes only.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import msgspec

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient, path_of
from sparewatt.cli.context import is_this_machine, last_started_network
from sparewatt.cli.errors import ApiError, CliError
from sparewatt.cli.leases.candidate_check import ChainDisagrees, check_on_chain
from sparewatt.core.errors import InvalidField, SparewattError
from sparewatt.core.rng import SystemRng
from sparewatt.market.match.record import AuctionRecord, read_record
from sparewatt.market.secret_recipients import ProvenMatch, SecretRecipient, UnprovenCandidates, recipients_of
from sparewatt.protocol.api.lease_changes import LeaseSecrets
from sparewatt.protocol.api.lease_match import LeaseMatchRecord
from sparewatt.protocol.api.leases import Lease
from sparewatt.protocol.api.market import MarketValidatorList
from sparewatt.protocol.contracts.sealed_secrets import SecretContext, named_secret, seal_secret
from sparewatt.protocol.signing import SigningKey

RECORD_WAIT_S, RECORD_POLL_S = 15.0, 0.5
"""Validators serve a match's record a moment after its certificate."""


@dataclass(frozen=True, slots=True)
class SealingContext:
    client: ApiClient
    chain_url: str | None
    """A JSON-RPC endpoint that the renter trusts; None: what validators signed has to do."""


def chain_of(client: ApiClient, given: str | None) -> str | None:
    """The option, the environment, or the chain of this network if it was started on this machine."""
    url = given or os.environ.get("CHAIN_URL")
    if url:
        return url
    last = last_started_network()
    is_same = last is not None and last[1].get("base_url") == client.base_url
    found = last[1].get("chain_url") if last is not None and is_same else None
    return found if isinstance(found, str) else None


def send_secrets(
    context: SealingContext,
    lease: Lease,
    values: Mapping[str, str],
    *,
    made: Mapping[str, Callable[[Lease], str]] | None = None,
) -> LeaseSecrets:
    """`made`: secrets of which each candidate gets a value of its own. Raises CliError if the candidates are not
    proven: then nothing was made or sent."""
    if lease.order_id is None:
        raise CliError("This lease is not on the chain yet.", next_step="Try again in a moment.")
    path = path_of("leases", lease.id, "secrets")
    wanted = context.client.get(path).parse(LeaseSecrets)
    match = _proven(context, lease.order_id, wanted)
    order_id = bytes.fromhex(lease.order_id[2:])
    by_candidate = {
        each.provider: {**values, **{name: make(lease) for name, make in (made or {}).items()}}
        for each in match.recipients
    }
    sealed = seal_all(by_candidate, match.recipients, order_id=order_id, attempt=wanted.attempt)
    body = {"attempt": wanted.attempt, "sealed": sealed}
    return context.client.post(path, body).parse(LeaseSecrets)


def seal_all(
    values: Mapping[str, Mapping[str, str]], recipients: Sequence[SecretRecipient], *, order_id: bytes, attempt: int
) -> dict[str, dict[str, str]]:
    """By candidate and name, as the values are, each with a key of its own."""
    rng = SystemRng()
    return {
        each.provider: {
            name: "0x"
            + seal_secret(
                named_secret(name, value),
                to_public_key=each.public_key,
                context=SecretContext(order_id, attempt, each.provider),
                ephemeral=SigningKey.generate(rng=rng),
            ).hex()
            for name, value in values[each.provider].items()
        }
        for each in recipients
    }


def _proven(context: SealingContext, order_id: str, wanted: LeaseSecrets) -> ProvenMatch:
    until_s = time.monotonic() + RECORD_WAIT_S
    while True:
        records = _records(context, order_id, wanted.attempt)
        try:
            found = recipients_of(
                records, order_id=bytes.fromhex(order_id[2:]), attempt=wanted.attempt, candidates=wanted.candidates
            )
            break
        except UnprovenCandidates as error:
            if time.monotonic() > until_s:
                raise _refusal(str(error)) from None
        time.sleep(RECORD_POLL_S)
    _check_chain(context, order_id, wanted, found)
    return found


def _check_chain(context: SealingContext, order_id: str, wanted: LeaseSecrets, found: ProvenMatch) -> None:
    if context.chain_url is None:
        output.note(
            "The candidates' keys are as the validators recorded them. With --chain-url they are read from a chain "
            "that you choose."
        )
        return
    try:
        asyncio.run(check_on_chain(context.chain_url, order_id, wanted, found))
    except ChainDisagrees as error:
        raise _refusal(str(error)) from None


def _refusal(why: str) -> CliError:
    return CliError(
        f"The secrets were not sent: {why}.",
        next_step="'sparewatt lease secrets ID' tries again; where no validator can be reached, --chain-url names a "
        "chain to check the match by. 'sparewatt validator replay ORDER' shows what validators recorded.",
    )


def _records(context: SealingContext, order_id: str, attempt: int) -> list[AuctionRecord]:
    """From the validators themselves, as far as they answer.

    The one that the gateway has counts only where a chain is asked as well: otherwise a gateway would list validators
    that nobody can reach, and serve a record of its own making.
    """
    from sparewatt.validator.record_fetch import dialled, fetch_records

    client = context.client
    is_here = is_this_machine(urlsplit(client.base_url).hostname or "")
    try:
        listed = client.get("/market/validators").parse(MarketValidatorList)
        urls = dialled((each.url for each in listed.data), allows_private=is_here)
        fetched = asyncio.run(fetch_records(urls, order_id, attempt, allows_private=is_here))
        return list(fetched.records.values())
    except (ApiError, SparewattError):
        return _gateways_record(client, order_id, attempt) if context.chain_url is not None else []


def _gateways_record(client: ApiClient, order_id: str, attempt: int) -> list[AuctionRecord]:
    path = f"{path_of('leases', order_id, 'match', 'record')}?attempt={attempt}"
    try:
        found = client.get(path).parse(LeaseMatchRecord)
        return [read_record(msgspec.json.decode(found.record))]
    except (ApiError, InvalidField, msgspec.DecodeError):
        return []
