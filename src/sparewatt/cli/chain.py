"""`sparewatt chain`: the network's chain, its contracts, and the index of its events."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient
from sparewatt.cli.context import json_option, last_started_network, network_options
from sparewatt.cli.errors import CliError
from sparewatt.cli.groups import DefaultGroup, examples
from sparewatt.cli.output import Fact
from sparewatt.cli.param_types import NUMBER
from sparewatt.protocol.api.operations import ChainStatus

if TYPE_CHECKING:
    from sparewatt.chain.client import ChainClient

T = TypeVar("T")

data_option = click.option(
    "--data",
    type=click.Path(path_type=Path),
    callback=lambda _ctx, _param, given: given or _default_data(),
    help="Holds the keys and the record of what is deployed.  [default: chain/ in the network's data directory]",
)
url_option = click.option("--chain-url", metavar="URL", help="JSON-RPC endpoint of the chain.  [env: CHAIN_URL]")
database_option = click.option("--database-url", metavar="URL", help="Postgres.  [env: DATABASE_URL]")


@click.group(cls=DefaultGroup, default="status")
@examples("sparewatt chain status")
def chain() -> None:
    """Show the network's chain, deploy contracts, fund an address, rebuild its index."""


@chain.command("status")
@network_options
@examples("sparewatt chain status")
def status(client: ApiClient, *, as_json: bool) -> None:
    """Show the chain, the contracts, and how far index and outbox are."""
    client.get("/chain").show(ChainStatus, _print_status, as_json=as_json)


def _print_status(chain: ChainStatus) -> None:
    if chain.note:
        output.note(chain.note)
    head = "" if chain.head_block is None else f" of {output.format_count(chain.head_block)}"
    facts: list[Fact] = [
        ("Chain id", output.format_optional(chain.chain_id, "{}")),
        ("Indexed block", output.format_count(chain.indexed_block) + head),
        ("Events", output.format_count(chain.events)),
        *([("Payout roots", chain.payout_roots)] if chain.payout_roots else []),
        ("Outbox", ", ".join(f"{n} {state}" for state, n in sorted(chain.outbox.items())) or "empty"),
        *(("Sender", f"{address}, {n} under way") for address, n in chain.senders.items()),
        *((f"Contract {name}", address) for name, address in sorted(chain.contracts.items())),
    ]
    output.print_facts(facts)


@chain.command("deploy")
@click.option(
    "--plan", default="local", show_default=True, metavar="local|public|FILE", help="Times and stakes of the contracts."
)
@click.option("--token", metavar="ADDRESS", help="The ERC-20 with six decimals that the network pays in.")
@click.option(
    "--guardian", metavar="ADDRESS", help="Who may strike a payout root.  [default: a new key, DATA/guardian.key]"
)
@url_option
@data_option
@json_option
@examples("CHAIN_URL=https://rpc.example sparewatt chain deploy --plan public --token 0x… --data ./chain")
def deploy(
    *, plan: str, token: str | None, guardian: str | None, chain_url: str | None, data: Path, as_json: bool
) -> None:
    """Deploy the contracts on a chain, once; a second run checks that they are still there.

    The key in DATA/deployer.key pays for it and must be used for nothing else; it is created if it is missing. The
    plan 'local' has short times and a token that anyone can mint, which local chains alone accept.
    """
    _announce(as_json=as_json)
    from sparewatt.chain.commands import deploy as do

    record = _with_chain(chain_url, lambda client: do(client, data, plan=plan, token=token, guardian=guardian))
    addresses = {name: placed.address for name, placed in record.contracts.items()}
    if as_json:
        output.print_json({"chain_id": record.chain_id, "start_block": record.start_block, "contracts": addresses})
    elif addresses:
        output.print_facts(sorted(addresses.items()))
    else:
        output.note("This release has no contracts to deploy.")


@chain.command("guard")
@click.argument("action", type=click.Choice(["strike", "stop", "lift"]))
@click.option("--pool", type=click.Choice(["credits", "rewards"]), default="credits", show_default=True)
@click.option("--key", type=click.Path(path_type=Path), help="The guardian's key.  [default: DATA/guardian.key]")
@url_option
@data_option
@json_option
@examples("sparewatt chain guard strike", "sparewatt chain guard stop --key ./guardian.key")
def guard(*, action: str, pool: str, key: Path | None, chain_url: str | None, data: Path, as_json: bool) -> None:
    """Strike a payout root that is still in its delay, stop a pool's roots, or lift the stop.

    For the guardian, when a root is not the one that the books give: the operator's key may be stolen. A struck root
    pays nothing. Claims of older roots and exits of depositors go on, also while a pool is stopped.
    """
    _announce(as_json=as_json)
    from sparewatt.chain.guard import GuardAction
    from sparewatt.chain.guard import guard as do

    tx_hash = _with_chain(
        chain_url, lambda client: do(client, data, action=GuardAction(action), pool=pool, key_file=key)
    )
    if as_json:
        output.print_json({"action": action, "pool": pool, "tx_hash": tx_hash})
    else:
        done = {"strike": "Struck the last root of", "stop": "Stopped", "lift": "Lifted the stop of"}[action]
        output.print_lines([f"{done} the pool of {pool} ({tx_hash})."])


@chain.command("fund")
@click.argument("address")
@click.option("--amount", default="100", show_default=True, help="In dollars of the test token.")
@url_option
@data_option
@json_option
@examples("sparewatt chain fund 0x4b31f0… --amount 25")
def fund(*, address: str, amount: str, chain_url: str | None, data: Path, as_json: bool) -> None:
    """Give an address test money on a development chain."""
    _announce(as_json=as_json)
    from sparewatt.chain.commands import fund as do

    tx_hash, units = _with_chain(chain_url, lambda client: do(client, data, address=address, amount_usd=amount))
    if as_json:
        output.print_json({"address": address, "amount_units": units, "tx_hash": tx_hash})
    else:
        output.print_lines([f"Gave {output.format_usd(amount)} of test money to {address} ({tx_hash})."])


@chain.command("sync")
@click.option("--rebuild", is_flag=True, help="Drop the index and rebuild it from the chain.")
@click.option("--another-chain", is_flag=True, help="With --rebuild: this chain replaces the one followed so far.")
@url_option
@database_option
@data_option
@json_option
@examples("sparewatt chain sync --rebuild")
def sync(
    *, rebuild: bool, another_chain: bool, chain_url: str | None, database_url: str | None, data: Path, as_json: bool
) -> None:
    """Bring the index in Postgres up to the chain's head. Safe while the network runs."""
    _announce(as_json=as_json)
    from sparewatt.chain.commands import sync as do

    dsn = database_url or os.environ.get("DATABASE_URL") or _embedded_dsn(data)
    block, events = _with_chain(
        chain_url, lambda client: do(client, data, dsn, rebuild=rebuild, another_chain=another_chain)
    )
    if as_json:
        output.print_json({"indexed_block": block, "events": events})
    else:
        output.print_lines([f"The index is at block {block:,} with {events:,} events."])


@chain.command("run")
@url_option
@database_option
@data_option
@click.option("--depth", type=int, help="Blocks after which a transaction is final.  [default: 6]")
@click.option("--poll-s", type=NUMBER, help="Seconds between two polls of the chain.")
@click.option("--deploy", is_flag=True, default=None, help="Deploy the contracts if they are missing.")
@click.option("--mine", is_flag=True, default=None, help="Mine blocks on a local chain while transactions wait.")
@click.option("--test-money", is_flag=True, default=None, help="The faucet pays what deposits and payouts lack.")
@click.option("--senders", type=int, help="Keys beside the operator's that relay requests.  [default: 0]")
@click.option("--max-fee-gwei", type=int, help="The most that a transaction may pay per gas.  [default: 500]")
@click.option("--secret-file", type=click.Path(path_type=Path), help="The network's secret.  [env: SPAREWATT_SECRET]")
@click.option("--ready-file", type=click.Path(path_type=Path), help="Written once the chain is followed.")
@click.option(
    "--saved-block-file",
    type=click.Path(path_type=Path),
    help="Names the newest block that a local chain has on disk; later ones are not final.",
)
@click.option("--yield-to-others", is_flag=True, help="Run with low CPU priority, below the gateway.")
@click.option("--config", type=click.Path(path_type=Path), help="Settings file (TOML, table [chain]).")
@examples("CHAIN_URL=https://rpc.example DATABASE_URL=postgresql://… sparewatt chain run --data ./chain")
def run(*, config: Path | None, yield_to_others: bool, **flags: Any) -> None:
    """Index the chain's events and send the transactions of the outbox, until stopped."""
    import asyncio

    from sparewatt.core.log import log_to_stderr
    from sparewatt.core.settings import load_settings
    from sparewatt.machine.lifeline import die_with_parent

    die_with_parent()
    if yield_to_others:
        os.nice(15)  # before the imports, which take most of its time
    from sparewatt.chain.process import run_chain
    from sparewatt.chain.settings import ChainSettings

    flags["chain_url"] = _chain_url(flags["chain_url"])
    flags["database_url"] = flags["database_url"] or os.environ.get("DATABASE_URL")
    flags["secret"] = os.environ.get("SPAREWATT_SECRET") or None
    settings = load_settings(ChainSettings, section="chain", flags=flags, env=os.environ, file=config)
    log_to_stderr(settings.log_level)
    asyncio.run(run_chain(settings))


def _announce(*, as_json: bool) -> None:
    """Before the imports of web3, which take seconds."""
    if not as_json:
        output.note("Asking the chain …")


def _with_chain(chain_url: str | None, work: Callable[[ChainClient], Awaitable[T]]) -> T:
    import asyncio

    from sparewatt.chain.client import ChainClient
    from sparewatt.evm.chain_url import check_chain_url

    async def do() -> T:
        client = ChainClient(check_chain_url(_chain_url(chain_url)))
        try:
            return await work(client)
        finally:
            await client.close()

    return asyncio.run(do())


def _chain_url(given: str | None) -> str:
    """The option, the environment, or the chain of the network that was started last on this machine."""
    last = last_started_network()
    url = given or os.environ.get("CHAIN_URL") or (last[1].get("chain_url") if last else None)
    if not isinstance(url, str) or not url:
        raise CliError(
            "No chain is known.",
            next_step="Set CHAIN_URL, or start a network with 'sparewatt up' and wait until it says the chain is up.",
        )
    return url


def _default_data() -> Path:
    last = last_started_network()
    return (last[0].parent if last else Path(".sparewatt")) / "chain"


def _embedded_dsn(data: Path) -> str:
    """The database of the `sparewatt up` whose data directory holds this one."""
    from sparewatt.postgres.server import EmbeddedPostgres

    return EmbeddedPostgres(data.resolve().parent / "postgres").dsn
