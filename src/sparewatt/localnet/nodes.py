"""The nodes that `up` runs on this machine. They differ in price and speed, so that matching has a choice."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from sparewatt.machine.spawn import free_port


@dataclass(frozen=True, slots=True)
class LocalNodeProfile:
    region: str
    hourly_usd: str
    limit_tps: float | None


PROFILES = (
    LocalNodeProfile("eu-west", "0.30", None),
    LocalNodeProfile("us-east", "0.12", 40.0),
    LocalNodeProfile("ap-south", "0.04", 15.0),
)


@dataclass(frozen=True, slots=True)
class LocalNode:
    name: str
    profile: LocalNodeProfile
    data_dir: Path
    engine_port: int


def local_nodes(data: Path, count: int) -> list[LocalNode]:
    return [
        LocalNode(
            name=f"node-{number}",
            profile=PROFILES[(number - 1) % len(PROFILES)],
            data_dir=data / "nodes" / f"node-{number}",
            engine_port=free_port(),
        )
        for number in range(1, count + 1)
    ]


def node_argv(
    node: LocalNode, root_url: str, *, weights: Path | None, model: str, drain_s: float, leases: bool
) -> tuple[str, ...]:
    """As typed by hand, but for the join token: it goes by the environment, to be in no process list."""
    serving = (
        (f"--serve={weights}", f"--serve-as={model}")
        if weights is not None
        else (f"--backend=http://127.0.0.1:{node.engine_port}",)
    )
    limit = () if node.profile.limit_tps is None else (f"--speed-limit-tps={node.profile.limit_tps}",)
    return (
        *(sys.executable, "-m", "sparewatt", "node", "join", root_url),
        *serving,
        *limit,
        f"--data={node.data_dir}",
        f"--name={node.name}",
        f"--region={node.profile.region}",
        f"--hourly-usd={node.profile.hourly_usd}",
        f"--drain-s={drain_s}",
        f"--machine-dir={node.data_dir.parents[1] / 'machine'}",
        "--leases" if leases else "--no-leases",
    )


def engine_argv(node: LocalNode, *, model: str) -> tuple[str, ...]:
    return (
        *(sys.executable, "-m", "sparewatt.testing"),
        f"--port={node.engine_port}",
        f"--model={model}",
        "--decode-tps=120",
        "--prefill-tps=4000",
    )
