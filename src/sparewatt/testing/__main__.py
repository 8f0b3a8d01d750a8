"""`python -m sparewatt.testing`: the deterministic engine as a process on a loopback port."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import get_args

import click

from sparewatt.protocol.link.node_report import Capability
from sparewatt.testing.engine.batch_driver import batch_limits
from sparewatt.testing.engine.engine import running_engine
from sparewatt.testing.engine.settings import CAPABILITIES, DIALECTS, EngineKind, EngineSettings

_RATE = click.FloatRange(min=0)


@click.command(context_settings={"auto_envvar_prefix": "SPAREWATT_ENGINE", "show_default": True})
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port on 127.0.0.1; 0 picks a free one.")
@click.option("--port-file", type=click.Path(path_type=Path), help="Write the port here once listening.")
@click.option("--model", "models", multiple=True, default=["deterministic"], help="Model to serve; may be repeated.")
@click.option(
    "--alias", "aliases", multiple=True, help="Another name of the model, for clients' own tests; may be repeated."
)
@click.option("--answer-tokens", type=click.IntRange(min=0), help="Length of every answer; default: by prompt, 20-200.")
@click.option("--prefill-tps", type=_RATE, default=0.0, help="Prompt tokens a second; 0 is as fast as possible.")
@click.option("--decode-tps", type=_RATE, default=0.0, help="Tokens a second of each stream; 0 as above.")
@click.option("--slots", type=click.IntRange(1, 4096), default=8, help="Generations at once; more are queued.")
@click.option("--load-s", type=_RATE, default=0.0, help="How long the model takes to load.")
@click.option("--cold", is_flag=True, help="Load on first use instead of at start.")
@click.option("--n-ctx", type=click.IntRange(min=1), default=8192, help="Context length in tokens.")
@click.option(
    "--n-params", type=click.IntRange(min=1), default=1_000_000_000, help="Parameters of the model, as reported."
)
@click.option("--n-embd", type=click.IntRange(1, 4096), default=64, help="Dimensions of an embedding.")
@click.option(
    "--prefix-cache-tokens",
    type=click.IntRange(min=0),
    default=0,
    help="Size of the prefix cache in tokens.",
)
@click.option(
    "--capability",
    "capabilities",
    multiple=True,
    default=CAPABILITIES,
    show_default=False,
    type=click.Choice(get_args(Capability)),
    help="What it advertises; may be repeated. Default: everything.",
)
@click.option("--fail-rate", type=click.FloatRange(0, 1), default=0.0, help="Share of requests that fail at random.")
@click.option("--seed", type=int, default=0, help="Seed of these failures.")
@click.option(
    "--engine-kind",
    type=click.Choice(get_args(EngineKind)),
    default="simple",
    help="simple: each stream at its own rate. slots: as llama.cpp. batching: as vLLM and SGLang.",
)
@click.option(
    "--speaks", type=click.Choice(DIALECTS), default="sparewatt", help="Whose pages and errors it has, as a server."
)
@click.option("--metrics/--no-metrics", default=True, help="Whether SGLang or llama.cpp has a metrics page.")
@click.option("--quantization", help="Quantization of the weights, as reported.")
@click.option("--weights", type=int, default=0, help="Others write other answers, under the same name.")
@click.option("--max-num-seqs", type=click.IntRange(1, 4096), default=256, help="batching: sequences at once.")
@click.option("--chunk-tokens", type=click.IntRange(min=1), default=2048, help="Tokens of one iteration.")
@click.option("--kv-tokens", type=click.IntRange(min=1), default=65_536, help="batching: tokens in the KV cache.")
@click.option("--separate-prefill", is_flag=True, help="batching: an iteration reads or writes, as in SGLang.")
@click.option("--step-s", type=_RATE, default=0.01, help="Time of a decoding step with one stream.")
@click.option("--step-per-job-s", type=_RATE, default=0.0, help="More for each further stream.")
@click.option("--step-per-token-s", type=_RATE, default=0.0, help="More for each token in all contexts.")
@click.option("--prefill-fixed-s", type=_RATE, default=0.0, help="Time of each prompt, whatever its length.")
@click.option("--prefill-token-s", type=_RATE, default=0.0001, help="Time of each token of a prompt.")
@click.option("--prefill-square-s", type=_RATE, default=0.0, help="Time per square of the prompt's tokens.")
def main(
    port: int, port_file: Path | None, models: tuple[str, ...], aliases: tuple[str, ...], **options: object
) -> None:
    """Serve answers that are a pure function of the prompt."""
    settings = _settings(models=tuple(dict.fromkeys((*models, *aliases))), **options)
    _check(settings)
    asyncio.run(serve(settings, port=port, port_file=port_file))


async def serve(settings: EngineSettings, *, port: int, port_file: Path | None) -> None:
    """Run until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: loop.call_soon_threadsafe(stop.set))
    async with running_engine(settings, port=port) as base_url:
        if port_file is not None:
            _write_port(port_file, base_url.rpartition(":")[2])
        print(f"ready {base_url}", flush=True)
        await stop.wait()


def _settings(**options: object) -> EngineSettings:
    return EngineSettings(**options)  # type: ignore[arg-type]  # click has checked each option by its type


def _check(settings: EngineSettings) -> None:
    if settings.engine_kind == "simple":
        return
    try:
        batch_limits(settings)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _write_port(path: Path, port: str) -> None:
    """Atomically: a reader never sees half a number."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(port, encoding="ascii")
    draft.replace(path)


if __name__ == "__main__":
    main()
