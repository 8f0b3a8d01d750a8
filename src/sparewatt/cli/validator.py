"""`sparewatt validator`: run a validator of the lease market, stake for it, and check what it and others did."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click
import msgspec

from sparewatt.cli import output
from sparewatt.cli.context import is_this_machine, json_option, last_started_network, lazy_network_options
from sparewatt.cli.errors import CliError, ExitCode
from sparewatt.cli.groups import DefaultGroup, examples
from sparewatt.cli.output import Column, Fact, left, right
from sparewatt.cli.param_types import NUMBER

if TYPE_CHECKING:
    from sparewatt.cli.client import ApiClient
    from sparewatt.protocol.api.validators import PeerStatus, SignedEntry, ValidatorStatus
    from sparewatt.validator.membership import StakeState

ID_CHARS = 18
UUSD_PER_USD = 10**6
VOTES_SHOWN = 20
_ORDER_ID = re.compile(r"0x[0-9a-fA-F]{64}")

data_option = click.option(
    "--data",
    type=click.Path(path_type=Path),
    default=Path(".sparewatt/validator"),
    show_default=True,
    help="Holds the vote key, its write-ahead file, and the records of matches.",
)
chain_url_option = click.option("--chain-url", metavar="URL", help="JSON-RPC endpoint of the chain.  [env: CHAIN_URL]")
contracts_option = click.option(
    "--contracts",
    type=click.Path(path_type=Path),
    help="contracts.json of the chain's process.  [default: that of the network started last]",
)
key_option = click.option(
    "--operator-key", type=click.Path(path_type=Path), help="The key that stakes.  [default: DATA/operator.key]"
)


attempt_option = click.option(
    "--attempt", type=click.IntRange(0, 2**32 - 1), help="Of the order.  [default: the newest]"
)


@click.group(cls=DefaultGroup, default="status")
@examples("sparewatt validator status", "sparewatt validator run --data ./validator --join-stake 1000")
def validator() -> None:
    """Run a validator of the lease market, stake for it, and check what it and others did."""


@validator.command("run")
@data_option
@chain_url_option
@contracts_option
@key_option
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=int, help="Port to listen on; 0 takes a free one.  [default: 8700]")
@click.option("--public-url", metavar="URL", help="Where others reach it.  [default: from host and port]")
@click.option("--tls-cert", type=click.Path(path_type=Path), help="Certificate chain (PEM).")
@click.option("--tls-key", type=click.Path(path_type=Path), help="The certificate's key (PEM, no passphrase).")
@click.option("--behind-proxy", is_flag=True, default=None, help="A proxy in front terminates TLS.")
@click.option(
    "--private-peers/--no-private-peers",
    default=None,
    help="Dial validators at private addresses.  [default: on loopback]",
)
@click.option("--depth", type=int, help="Blocks after which an event is final.  [default: 6]")
@click.option("--poll-s", type=NUMBER, help="Seconds between two looks at the chain.  [default: 0.25]")
@click.option("--beat-s", type=NUMBER, help="Seconds between heartbeats of nodes.  [default: 2 locally, else 15]")
@click.option("--timing", type=click.Choice(["local", "public"]), help="Of rounds.  [default: as the chain is]")
@click.option("--join-stake", metavar="USD", help="Join by itself with this much at stake, if it has not joined.")
@click.option(
    "--challenge/--no-challenge",
    "challenges",
    default=None,
    help="Send proofs of faults that it sees, for a tenth of what is taken.  [default: yes]",
)
@click.option("--new-vote-key", is_flag=True, default=None, help="Retire the vote key and make a new one.")
@click.option(
    "--retire-unusable-key",
    is_flag=True,
    default=None,
    help="On a local chain: make a new vote key where the old one must not sign.",
)
@click.option("--ready-file", type=click.Path(path_type=Path), help="Written once it listens and follows the chain.")
@click.option("--yield-to-others", is_flag=True, help="Run with low CPU priority.")
@click.option("--config", type=click.Path(path_type=Path), help="Settings file (TOML, table [validator]).")
@examples(
    "sparewatt validator run --chain-url https://rpc.example --contracts ./contracts.json --join-stake 1000",
    "  --host 0.0.0.0 --tls-cert fullchain.pem --tls-key privkey.pem --public-url https://v1.example:8700",
)
def run(*, config: Path | None, yield_to_others: bool, **flags: Any) -> None:
    """Take part in matches and snapshots until stopped.

    What it signs is on disk before it is sent, in DATA/signed.wal, which belongs to DATA/vote.key: keep both, copy
    neither. A validator that is restored from a backup needs --new-vote-key.
    """
    import asyncio

    from sparewatt.core.log import log_to_stderr
    from sparewatt.core.settings import load_settings
    from sparewatt.machine.lifeline import die_with_parent

    die_with_parent()
    if yield_to_others:
        os.nice(15)  # before the imports, which take most of its time
    from sparewatt.validator.process import run_validator
    from sparewatt.validator.settings import ValidatorSettings

    flags["chain_url"] = _chain_url(flags["chain_url"])
    flags["contracts"] = _contracts(flags["contracts"])
    settings = load_settings(ValidatorSettings, section="validator", flags=flags, env=os.environ, file=config)
    log_to_stderr(settings.log_level)
    asyncio.run(run_validator(settings))


@validator.command("join")
@click.option("--stake", required=True, metavar="USD", help="How much to stake in all.")
@click.option("--url", required=True, metavar="URL", help="Where others will reach the validator.")
@data_option
@chain_url_option
@contracts_option
@key_option
@json_option
@examples("sparewatt validator join --stake 1000 --url https://v1.example:8700 --data ./validator")
def join(
    *,
    stake: str,
    url: str,
    data: Path,
    chain_url: str | None,
    contracts: Path | None,
    operator_key: Path | None,
    as_json: bool,
) -> None:
    """Stake, and register vote key and URL. Run it again to add stake, or to change key or URL.

    New stake weighs after the network's activation time. The command waits for that if it is a minute at most; else a
    running validator or the network does the rest. On a chain of test money the faucet gives what is missing.
    """
    import asyncio

    from sparewatt.validator.commands import join as do

    state = asyncio.run(
        do(
            data=data,
            chain_url=_chain_url(chain_url),
            contracts=_contracts(contracts),
            operator_key=operator_key,
            stake_usd=stake,
            url=url,
        )
    )
    _show_stake(state, as_json=as_json)


@validator.command("leave")
@data_option
@chain_url_option
@contracts_option
@key_option
@json_option
@examples("sparewatt validator leave --data ./validator")
def leave(
    *, data: Path, chain_url: str | None, contracts: Path | None, operator_key: Path | None, as_json: bool
) -> None:
    """Take all stake out: its weight ends at once, the money is free after the unbonding time.

    Keep the validator running until its open matches have ended. Run the command again once the time is over.
    """
    import asyncio

    from sparewatt.validator.commands import leave as do

    contracts, url = _contracts(contracts), _chain_url(chain_url)
    state = asyncio.run(do(data=data, chain_url=url, contracts=contracts, operator_key=operator_key))
    _show_stake(state, as_json=as_json)


@validator.command("status")
@click.option(
    "--url", metavar="URL", help="Of the validator.  [default: the one in DATA, or the first on this machine]"
)
@data_option
@json_option
@examples("sparewatt validator status", "sparewatt validator status --url http://127.0.0.1:8701 --json")
def status(*, url: str | None, data: Path, as_json: bool) -> None:
    """Show a running validator: stake, weight, votes, and whom it reaches."""
    import asyncio

    from sparewatt.validator.commands import find_validators, own_url, read_status

    url = url or own_url(next(iter(find_validators(data, network=_network_folder())), data))
    found = asyncio.run(read_status(url.rstrip("/")))
    if as_json:
        output.print_json(msgspec.to_builtins(found))
    else:
        _print_status(found)


@validator.command("votes")
@click.option("--limit", type=click.IntRange(1, 100_000), default=VOTES_SHOWN, show_default=True, help="How many.")
@data_option
@json_option
@examples("sparewatt validator votes --data ./validator", "sparewatt validator votes --limit 1000 --json")
def votes(*, limit: int, data: Path, as_json: bool) -> None:
    """List what this validator signed, from its write-ahead file, the newest first."""
    from sparewatt.validator.commands import signed_entries

    entries = signed_entries(data, limit=limit)
    if as_json:
        output.print_json({"signed": msgspec.to_builtins(entries)})
    elif not entries:
        output.note(f"Nothing was signed in {data}.")
    else:
        _print_entries(entries)


@validator.command("replay")
@click.argument("order")
@attempt_option
@click.option(
    "--from",
    "sources",
    multiple=True,
    metavar="URL|FILE",
    help="A validator, or a file with its record; several are compared.  "
    "[default: those on this machine, else all that the network lists]",
)
@data_option
@lazy_network_options
@examples(
    "sparewatt validator replay 0x9c1f…",
    "sparewatt validator replay trainer",
    "sparewatt validator replay 0x9c1f… --from http://127.0.0.1:8701 --from http://127.0.0.1:8702",
)
def replay(
    connect: Callable[[], ApiClient],
    *,
    order: str,
    attempt: int | None,
    sources: tuple[str, ...],
    data: Path,
    as_json: bool,
) -> None:
    """Compute a match again from what validators recorded: the same digest, why each bid won, lost or was refused, and
    which faults the records prove.

    ORDER is an order's id, or the id or name of a lease of yours. Nothing in a record is believed but what is signed.
    The exit code is 1 if the result is not what was certified.
    """
    import asyncio

    from sparewatt.cli.match_replay import print_replay, replay_json
    from sparewatt.market.faults import find_faults
    from sparewatt.market.match.replay import pool_of
    from sparewatt.market.match.replay import replay as recompute
    from sparewatt.validator.commands import find_validators, record_sources
    from sparewatt.validator.process import URL_FILE
    from sparewatt.validator.record_fetch import fetch_records

    order_id, allows_private = _order_id(order) if sources else _named_order(connect, order), True
    folders = [] if sources else find_validators(data, network=_network_folder())
    if any((folder / URL_FILE).exists() for folder in folders):
        sources, attempt = record_sources(folders, order_id, attempt)
    elif not sources:
        sources, allows_private = _listed_validators(connect())
    fetched = asyncio.run(fetch_records(sources, order_id, attempt, allows_private=allows_private))
    first, *others = fetched.records.values()
    result = recompute(first, *others)
    faults = find_faults(pool_of((first, *others)), indices=dict.fromkeys(first.context.weights, 0))
    if as_json:
        output.print_json({**replay_json(result, faults), "sources": list(fetched.records)})
    else:
        print_replay(result, faults)
        output.note(f"From the records of {len(fetched.records)} validators.")
        for each in fetched.silent:
            output.note(f"Without {each.source}: {each.why}")
    if result.differences:
        raise click.exceptions.Exit(ExitCode.FAILURE)


@validator.command("challenge")
@click.argument("order")
@attempt_option
@click.option(
    "--from",
    "sources",
    multiple=True,
    metavar="URL|FILE",
    help="A validator, or a file with its record.  [default: all of the stake registry]",
)
@click.option(
    "--key",
    type=click.Path(path_type=Path),
    help="Send the proofs with this key, which pays the gas and gets the reward. Without it nothing is sent.",
)
@chain_url_option
@contracts_option
@json_option
@examples("sparewatt validator challenge 0x9c1f…", "sparewatt validator challenge 0x9c1f… --key ./challenger.key")
def challenge(
    *,
    order: str,
    attempt: int | None,
    sources: tuple[str, ...],
    key: Path | None,
    chain_url: str | None,
    contracts: Path | None,
    as_json: bool,
) -> None:
    """Find every fault in a match that public data proves, and with --key have it punished.

    A tenth of what a culprit loses goes to whoever proves it first. A fault that was punished before is shown as such.
    """
    import asyncio

    from sparewatt.cli.match_challenge import challenge_json, print_challenge
    from sparewatt.validator.challenge import challenge as do

    found = asyncio.run(
        do(
            _order_id(order),
            attempt=attempt,
            sources=sources,
            key=key,
            chain_url=_chain_url(chain_url),
            contracts=_contracts(contracts),
        )
    )
    if as_json:
        output.print_json(challenge_json(found))
    else:
        print_challenge(found, is_sent=key is not None)


# what is shown


def _print_status(found: ValidatorStatus) -> None:
    facts: list[Fact] = [
        ("Operator", found.operator),
        ("Vote key", found.vote_key + _unregistered(found)),
        ("URL", found.url or "not registered: 'sparewatt validator join'"),
        ("Block", f"{found.block_number:,}" + (" (syncing)" if found.is_syncing else "")),
        ("Stake", _usd(found.stake_uusd) + (f", {_usd(found.pending_uusd)} pending" if found.pending_uusd else "")),
        ("Weight", f"{_share(found.weight, found.total_weight)} of {found.validators} validators"),
        *([("Unbonding", _usd(found.unbonding_uusd))] if found.unbonding_uusd else []),
        *([("Jailed", "a fault was proven; this operator has no weight any more")] if found.is_jailed else []),
        ("Snapshot", f"epoch {found.snapshot_epoch}" if found.snapshot_epoch else "none yet"),
        ("Matches", f"{found.open_matches} open, {found.votes_cast} votes, {found.rounds_missed} rounds missed"),
        ("Certificates", f"{found.certificates_signed} signed of {found.certificates_seen}"),
        ("Submitted", f"{found.certificates_submitted} by its own transactions"),
        ("Providers heard", str(found.heard_providers)),
    ]
    output.print_facts(facts)
    if found.peers:
        columns: list[Column[PeerStatus]] = [
            left("validator", lambda peer: peer.vote_key[:ID_CHARS]),
            left("url", lambda peer: peer.url),
            right("weight", lambda peer: _share(peer.weight, found.total_weight)),
            left("reached", lambda peer: "yes" if peer.is_reachable else "no"),
        ]
        output.print_table(columns, found.peers)


def _unregistered(found: ValidatorStatus) -> str:
    if found.registered_vote_key in {"", found.vote_key}:
        return ""
    return f" (the registry has {found.registered_vote_key}: 'sparewatt validator join')"


def _print_entries(entries: list[SignedEntry]) -> None:
    columns: list[Column[SignedEntry]] = [
        left("kind", lambda entry: entry.kind.replace("_", " ")),
        left("about", lambda entry: entry.order_id[:ID_CHARS] if entry.order_id else f"epoch {entry.epoch}"),
        right("attempt", lambda entry: "" if entry.attempt is None else str(entry.attempt)),
        right("round", lambda entry: "" if entry.round is None else str(entry.round)),
        right("items", lambda entry: str(entry.items)),
        left("signed", lambda entry: output.ago(entry.signed_at, now_s=time.time())),
        left("hash", lambda entry: entry.hash[:ID_CHARS]),
    ]
    output.print_table(columns, entries, may_drop=("hash", "items"))


def _show_stake(state: StakeState, *, as_json: bool) -> None:
    if as_json:
        output.print_json(msgspec.to_builtins(state))
        return
    facts: list[Fact] = [
        ("Vote key", state.vote_key or "none"),
        ("URL", state.url),
        ("Stake", _usd(state.stake_uusd)),
        *([("Pending", f"{_usd(state.pending_uusd)}, {_weighs_at(state)}")] if state.pending_uusd else []),
        *([("Unbonding", f"{_usd(state.unbonding_uusd)}, {_free_at(state)}")] if state.unbonding_uusd else []),
    ]
    output.print_facts(facts)


def _usd(uusd: int) -> str:
    return output.format_usd(f"{uusd / UUSD_PER_USD:.6f}")


def _share(weight: int, total: int) -> str:
    return f"{100 * weight / total:.1f} %" if total else "0 %"


# where things are


def _free_at(state: StakeState) -> str:
    return f"free from {_time(state.ready_at)}; then run 'sparewatt validator leave' again"


def _weighs_at(state: StakeState) -> str:
    return f"can weigh from {_time(state.activates_at)}"


def _time(unix_s: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(unix_s))


def _named_order(connect: Callable[[], ApiClient], given: str) -> str:
    """The id of an order, which a lease of the caller may stand for."""
    from sparewatt.cli.client import path_of
    from sparewatt.protocol.api.leases import Lease

    if _ORDER_ID.fullmatch(given):
        return given.lower()
    order_id = connect().get(path_of("leases", given)).parse(Lease).order_id
    if order_id is None:
        raise CliError("This lease is not on the chain yet.", next_step="Try again in a moment.")
    return order_id


def _order_id(given: str) -> str:
    if not _ORDER_ID.fullmatch(given):
        raise CliError("An order's id is 0x and 64 hex digits.", exit_code=ExitCode.USAGE)
    return given.lower()


def _listed_validators(client: ApiClient) -> tuple[tuple[str, ...], bool]:
    """The URLs that the network lists, and whether private addresses among them are dialled."""
    from sparewatt.protocol.api.market import MarketValidatorList
    from sparewatt.validator.record_fetch import dialled

    is_here = is_this_machine(urlsplit(client.base_url).hostname or "")
    listed = client.get("/market/validators").parse(MarketValidatorList)
    return tuple(dialled((each.url for each in listed.data), allows_private=is_here)), is_here


def _chain_url(given: str | None) -> str:
    """The option, the environment, or the chain of the network that was started last on this machine."""
    last = last_started_network()
    url = given or os.environ.get("CHAIN_URL") or (last[1].get("chain_url") if last else None)
    if not isinstance(url, str) or not url:
        raise CliError(
            "No chain is known.", next_step="Set CHAIN_URL, or give --chain-url: the JSON-RPC endpoint of the chain."
        )
    return url


def _contracts(given: Path | None) -> Path:
    if given is not None:
        return given
    folder = _network_folder()
    if folder is None:
        raise CliError(
            "No contracts are known.",
            next_step="Give --contracts: the contracts.json that 'sparewatt chain deploy' made.",
        )
    return folder / "chain" / "contracts.json"


def _network_folder() -> Path | None:
    """The data directory of the network that was started last on this machine."""
    last = last_started_network()
    return last[0].parent if last else None
