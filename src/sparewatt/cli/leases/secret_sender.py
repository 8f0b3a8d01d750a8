"""What a command does about the secrets of a lease: which there are, which are sent, and what is said of the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient
from sparewatt.cli.errors import CliError
from sparewatt.core.plural import pluralize

if TYPE_CHECKING:
    from sparewatt.protocol.api.leases import Lease

chain_url_option = click.option(
    "--chain-url",
    metavar="URL",
    help="JSON-RPC endpoint of the chain, by which the keys that secrets are sealed to are checked.  [env: CHAIN_URL]",
)


def secrets_of(fields: Mapping[str, Any]) -> list[str]:
    """The names in an order's fields; the gateway's parser judges them."""
    found = fields.get("secrets")
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


@dataclass(frozen=True, slots=True)
class SecretSender:
    client: ApiClient
    values: Mapping[str, str]
    names: Sequence[str]
    chain_url: str | None
    made: Mapping[str, Callable[[Lease], str]] = field(default_factory=dict)
    """Secrets that nobody types: each candidate gets a value of its own."""
    unsent: list[str] = field(default_factory=list)
    """Leases whose candidates were not proven, or that the gateway took nothing for."""

    def send_all(self, leases: Sequence[Lease]) -> None:
        """To each lease. One that fails is told, and does not keep the others from theirs."""
        from sparewatt.cli.leases.sealing import SealingContext, chain_of, send_secrets

        if not self.names:
            return
        count = len({**self.values, **self.made})
        for lease in leases if count else ():
            try:
                context = SealingContext(self.client, chain_of(self.client, self.chain_url))
                send_secrets(context, lease, self.values, made=self.made)
            except CliError as error:
                self.unsent.append(lease.id)
                output.note(f"WARNING {lease.id} waits for its secrets. {error.message}")
            else:
                output.note(f"{pluralize(count, 'secret')} of {lease.id} sealed to its candidates and sent.")
        if leases:
            self._tell_missing(leases[0].id)

    def require_sent(self) -> None:
        """Raises CliError if the secrets of a lease were not sent."""
        if self.unsent:
            raise CliError(
                f"The secrets of {', '.join(self.unsent)} were not sent, so it does not start.",
                next_step=f"'sparewatt lease secrets {self.unsent[0]}' tries again, 'sparewatt lease close' ends it.",
            )

    def tell_unsent(self, name: str) -> None:
        """Of an order that is not followed."""
        if self.names:
            output.note(f"It waits for its secrets: when it is matched, 'sparewatt lease secrets {name}' sends them.")

    def _tell_missing(self, lease_id: str) -> None:
        missing = [name for name in self.names if name not in self.values and name not in self.made]
        if missing:
            output.note(
                f"It waits for {', '.join(missing)}: 'sparewatt lease secrets {lease_id} --secret {missing[0]}=-' "
                "sends one from stdin."
            )
