"""`sparewatt lease image` and `lease create --serve`: a lease whose container joins this network as the renter's node.

The image is made of what is installed here. The join token is made after the match, one for each candidate, and goes to
them sealed: a stand-in that takes the lease over joins with its own.
"""

from __future__ import annotations

import asyncio
import math
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient
from sparewatt.cli.context import json_option
from sparewatt.cli.errors import CliError, ExitCode
from sparewatt.cli.groups import examples
from sparewatt.core.errors import SparewattError
from sparewatt.protocol.api.accounts import JOIN_TOKEN_LIFE_S_MAX, JoinToken

if TYPE_CHECKING:
    from sparewatt.cli.leases.order_options import OrderDraft
    from sparewatt.node.leases.runtime.engine import ContainerEngine
    from sparewatt.node.serving_image.image_store import ServingImage
    from sparewatt.protocol.api.leases import Lease

T = TypeVar("T")
TOKEN_SECRET = "SPAREWATT_NODE_TOKEN"  # noqa: S105 (the name of a secret)
NAME_VARIABLE = "SPAREWATT_NODE_NAME"
START_S = 3_600
"""How long a lease may take to start."""
BYTES_PER_GB = 10**9
MEMORY_GB_BASE, MEMORY_PER_WEIGHTS = 1.0, 1.5
"""Agent and buffers; weights with the cache of what the answers have read."""


@click.command("image")
@click.argument("model", required=False)
@click.option(
    "--weights",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A GGUF file.  [default: the weights of MODEL that are installed here]",
)
@json_option
@examples(
    "sparewatt lease image smollm2-135m",
    "sparewatt lease image my-model --weights my-model.Q4_K_M.gguf",
)
def make_image(*, model: str | None, weights: Path | None, as_json: bool) -> None:
    """Make a container image that serves MODEL as a node, for 'lease create --serve MODEL'.

    It has this Python, the packages of a serving node and the weights, all as they are installed here; nothing is
    downloaded. Machines elsewhere need it from a registry: tag and push it, and name it with --image.
    """
    from sparewatt.node.serving_image.weights import find_model_weights

    if model is None and weights is None:
        raise CliError("Say what it shall serve: a model's name, or --weights FILE.", exit_code=ExitCode.USAGE)
    found = find_model_weights(model, weights)

    async def make(engine: ContainerEngine) -> ServingImage:
        from sparewatt.node.serving_image.image_archive import write_image
        from sparewatt.node.serving_image.image_files import collect_files, python_program
        from sparewatt.node.serving_image.image_store import image_tag, load_image

        with tempfile.TemporaryDirectory(prefix="sparewatt-image-", dir=_roomy_folder()) as folder:
            output.note(f"Collecting Python, packages and {found.file.name}.")
            files = await asyncio.to_thread(collect_files)
            to, tag = Path(folder), image_tag(found.model)
            await asyncio.to_thread(write_image, to, files, found, python=python_program(), tag=tag)
            output.note(f"Loading {(to / 'image.tar').stat().st_size / BYTES_PER_GB:.2f} GB into the engine.")
            return await load_image(engine, to / "image.tar", found.model)

    try:
        made = _with_engine(make)
    except OSError as error:
        raise CliError(f"The image cannot be written: {error.strerror or error}.") from None
    if as_json:
        output.print_json({"image": made.tag, "id": made.image_id, "model": made.model})
        return
    output.print_lines([made.tag])
    output.note(f"'sparewatt lease create --serve {made.model}' runs it as a node of yours.")


def _roomy_folder() -> str | None:
    """Where a file of gigabytes belongs: /tmp is often in memory."""
    return "/var/tmp" if Path("/var/tmp").is_dir() else None  # noqa: S108 (a folder of its own is made in it)


def _with_engine(work: Callable[[ContainerEngine], Coroutine[Any, Any, T]]) -> T:
    """Raises CliError if no engine can be used."""
    from sparewatt.cli.leases.engine import engine_socket

    async def run(socket: Path | None) -> T:
        from sparewatt.node.leases.runtime.engine import ContainerEngine, find_socket

        engine = ContainerEngine(find_socket(socket))
        try:
            return await work(engine)
        finally:
            await engine.close()

    with engine_socket() as socket:
        from sparewatt.node.leases.runtime.model import LeaseRuntimeError

        try:
            return asyncio.run(run(socket))
        except LeaseRuntimeError as error:
            raise CliError(f"{str(error)[:1].upper()}{str(error)[1:]}.") from None


@dataclass(frozen=True, slots=True)
class ServingOrder:
    """What `--serve` adds to an order."""

    model: str
    image: str
    weights_bytes: int | None
    """None: of an image that is somewhere else."""

    def complete(self, draft: OrderDraft) -> None:
        """What the renter has said goes before."""
        fields = draft.fields
        fields["gateway"] = True
        fields.setdefault("name", f"serve-{self.model.rpartition('/')[2].replace(':', '-')}"[:63])
        fields["secrets"] = [*(fields.get("secrets") or []), TOKEN_SECRET]
        resources = dict(fields.get("resources") or {})
        resources.setdefault("gpus", 0)
        if self.weights_bytes is not None:
            resources.setdefault("memory_gb", memory_gb(self.weights_bytes))
        fields["resources"] = resources
        if fields.get("count") in (None, 1):
            draft.add_variable(NAME_VARIABLE, str(fields["name"]))


def memory_gb(weights_bytes: int) -> float:
    """In tenths, rounded up."""
    return math.ceil(10 * (MEMORY_GB_BASE + MEMORY_PER_WEIGHTS * weights_bytes / BYTES_PER_GB)) / 10


def find_served(model: str, image: str | None) -> ServingOrder:
    """The image of a model: the one that is named, or this machine's. Raises CliError."""
    from sparewatt.node.serving_image.weights import canonical_name

    try:
        name = canonical_name(model)
    except SparewattError as error:
        raise CliError(error.message, exit_code=ExitCode.USAGE) from None
    if image is not None:
        return ServingOrder(name, image, None)

    async def find(engine: ContainerEngine) -> ServingImage | None:
        from sparewatt.node.serving_image.image_store import find_serving_image

        return await find_serving_image(engine, name) or await find_serving_image(engine, model)

    found = _with_engine(find)
    if found is None:
        raise CliError(_no_image(name), next_step=_how_to_make(name), exit_code=ExitCode.NOT_FOUND)
    return ServingOrder(found.model, found.tag, found.weights_bytes)


def _no_image(name: str) -> str:
    return f"There is no image on this machine that serves {name}."


def _how_to_make(name: str) -> str:
    from sparewatt.node.serving_image.weights import installed_weights

    weights = "" if installed_weights(name) is not None else " --weights MODEL.gguf"
    return f"'sparewatt lease image {name}{weights}' makes one; --image names one of a registry."


@dataclass(frozen=True, slots=True)
class JoinTokenMaker:
    """Makes the join tokens of a lease: each is good for one node, while the lease may need it."""

    client: ApiClient

    def __call__(self, lease: Lease) -> str:
        """Raises ApiError, also where the key may not lend nodes."""
        life_s = min(JOIN_TOKEN_LIFE_S_MAX, lease.duration_s + START_S)
        return self.client.post("/join-tokens", {"life_s": life_s, "lease": lease.id}).parse(JoinToken).token
