"""`sparewatt up`: a whole network on this machine."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sparewatt.cli.context import json_option, remember_network
from sparewatt.cli.groups import examples

if TYPE_CHECKING:
    from sparewatt.localnet.network import LocalnetInfo


@click.command()
@click.option("--port", type=click.IntRange(1, 65535), help="Port of the gateway.  [default: 8484]")
@click.option(
    "--metrics-port", type=click.IntRange(0, 65535), help="Port of its metrics.  [default: 9484 or a free one]"
)
@click.option("--data", type=click.Path(path_type=Path), help="Where everything is kept.  [default: .sparewatt]")
@click.option("--processes", type=click.IntRange(1, 64), help="Processes of the gateway.  [default: 1]")
@click.option("--nodes", type=click.IntRange(0, 32), help="Local nodes to run.  [default: 3]")
@click.option("--validators", type=click.IntRange(0, 32), help="Validators of the lease market.  [default: 4]")
@click.option("--engine", type=click.Choice(["llama", "deterministic"]), help="A real model, or the test engine.")
@click.option("--database-url", help="Use this Postgres instead of the embedded one.  [env: DATABASE_URL]")
@click.option("--chain-url", help="Use this chain instead of a local one.  [env: CHAIN_URL]")
@click.option("--no-chain", is_flag=True, default=None, help="Run without a chain: no leases, no payouts.")
@click.option(
    "--containers/--no-containers", default=None, help="Start podman's service for leases, where podman is installed."
)
@click.option("--config", type=click.Path(path_type=Path), help="Settings file (TOML, table [up]).")
@json_option
@examples("sparewatt up", "sparewatt up --port 8099 --data /tmp/net --nodes 5")
def up(*, config: Path | None, as_json: bool, **flags: Any) -> None:
    """Start a whole network on this machine: database, gateway and nodes with a small real model.

    Stop it with Ctrl-C. Keys, nodes and logs stay in the data directory; a second start takes seconds.
    """
    import asyncio
    import json

    from sparewatt.core.clock import SystemClock
    from sparewatt.core.rng import SystemRng
    from sparewatt.core.settings import load_settings
    from sparewatt.localnet.network import UpSettings, run_network
    from sparewatt.machine.lifeline import die_with_parent
    from sparewatt.machine.program_name import program_name

    die_with_parent(signal.SIGTERM)  # `make up` names itself as the parent; a shell does not
    flags["database_url"] = flags["database_url"] or os.environ.get("DATABASE_URL")
    flags["chain_url"] = flags["chain_url"] or os.environ.get("CHAIN_URL") or None
    settings = load_settings(UpSettings, section="up", flags=flags, env=os.environ, file=config)

    program = program_name(sys.argv[0], cwd=Path.cwd())

    def on_ready(ready: LocalnetInfo, ready_file: Path) -> None:
        remember_network(ready_file)
        click.echo(json.dumps(ready.as_json()) if as_json else banner(ready, program))

    asyncio.run(
        run_network(
            settings,
            program=program,
            clock=SystemClock(),
            rng=SystemRng(),
            notify=lambda text: click.echo(text, err=True),
            on_ready=on_ready,
        )
    )


def banner(ready: LocalnetInfo, program: str) -> str:
    """Addresses, keys, and commands to copy."""
    messages = '[{"role": "user", "content": "Say hello"}]'
    question = f'{{"model": "{ready.model}", "stream": true, "messages": {messages}}}'
    return f"""
Sparewatt is up. Stop it with Ctrl-C.

  Base URL    {ready.base_url}
  API key     {ready.api_key}
  Dashboard   {ready.dashboard_url}
  Operator    {ready.operator_link}  (once, within ten minutes; then: {program} dashboard --as operator)
  Metrics     {ready.metrics_url or "off"}

Ask it something:

  curl -N {ready.base_url}/chat/completions -H 'Authorization: Bearer {ready.api_key}' \\
    -H 'Content-Type: application/json' -d '{question}'

  python -c "from openai import OpenAI; c = OpenAI(base_url='{ready.base_url}', api_key='{ready.api_key}'); \
print(c.chat.completions.create(model='{ready.model}', messages=[{{'role': 'user', 'content': 'Say hello'}}])\
.choices[0].message.content)"

  {program} chat {ready.model}

Lend a machine of yours: copy this line into its shell, in a Python environment of its own (python3 -m venv). From
outside this machine the gateway needs TLS and a public address: docs/how-to/operate.md.

  {ready.join_line}

The line is good for one node, and what that earns belongs to this network's own account. To earn for yours, sign up
first and make your own line: {program} signup && {program} node token
"""
