"""What a lease's container is made of, how it is known again, and what this machine's runtime can do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

PIDS_MAX = 4_096
"""Processes and threads of one lease: more than a server with workers needs, less than what harms the host."""

GpuWay = Literal["cdi", "device_requests"]
OutputStream = Literal["stdout", "stderr"]


class LeaseRuntimeError(Exception):
    """Base of what a runtime raises. The message is for people."""


class EngineUnavailable(LeaseRuntimeError):
    """No engine is there, or it does not answer. Says nothing about containers: they may well run."""


class ImageUnavailable(LeaseRuntimeError):
    """The image can neither be pulled nor is it here."""


class StartRefused(LeaseRuntimeError):
    """This machine cannot run the container as it is ordered."""


class MachineUnable(StartRefused):
    """… and it is the machine's fault: limits, network, egress table or cards, which no image or command changes."""


class ContainerMissing(LeaseRuntimeError):
    """No container has this label."""


class PortUnreachable(LeaseRuntimeError):
    """Nothing answers there, or the lease has no network."""


class ContainerState(StrEnum):
    CREATED = "created"
    RUNNING = "running"
    PAUSED = "paused"
    EXITED = "exited"
    GONE = "gone"


class RestartRule(StrEnum):
    """When a renter's program is started again after it ended."""

    ALWAYS = "always"
    ON_FAILURE = "on_failure"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class LeaseLabel:
    """What a container is known by, also to an agent that starts anew. One per lease and term on one node."""

    lease_id: str
    """0x…"""
    term: int
    attempt: int
    node: str
    """The address of the node's key: several agents may share an engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerPlan:
    label: LeaseLabel
    image: str
    command: tuple[str, ...] = ()
    """As after the image in `docker run`; empty: the image's own."""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """With the secrets in it, so never shown."""
    cpu_milli: int
    memory_mib: int
    disk_mib: int
    gpu_ids: tuple[str, ...] = ()
    """Whole cards, by index or UUID."""
    ports: tuple[int, ...] = ()
    egress: bool
    """Whether the program may reach public addresses."""
    read_only: bool = False
    restart: RestartRule = RestartRule.ALWAYS
    agent_port: bool = False
    """Whether it may reach the one port of the host that the agent serves on this lease's bridge."""
    content: str = ""
    """The hash of the document that it is made of, by which an update is told from what runs."""
    pids_max: int = PIDS_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseContainer:
    container_id: str
    label: LeaseLabel
    state: ContainerState
    address: str | None = None
    """On its bridge; None while it does not run, or where leases have no network."""
    host_address: str | None = None
    """The host's own on that bridge, on which the agent may listen (`agent_port`)."""
    started_unix_s: float | None = None
    ended_unix_s: float | None = None
    exit_code: int | None = None
    restarts: int = 0
    """By this runtime, since the container was made."""
    is_out_of_memory: bool = False
    """Whether its last end was for memory."""
    is_disk_full: bool = False
    """Whether it is paused because its disk is full."""
    content: str = ""
    """As its plan had it; empty in a container of an earlier release."""


@dataclass(frozen=True, slots=True)
class RuntimeTrouble:
    what: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeAbility:
    """Found by trying. Without `limits` nothing is to be started."""

    engine: str = ""
    """As `podman 4.3.1`; empty: none answers."""
    socket: str = ""
    limits: bool = False
    """Memory, processor and processes."""
    egress: bool = False
    """The egress table holds. Without it leases have no network at all, and `connect` raises PortUnreachable."""
    disk_kind: int = 0
    """0: the disk is watched; 1: the file system enforces a quota. As in the market's `Terms`."""
    gpus: GpuWay | None = None
    troubles: tuple[RuntimeTrouble, ...] = ()
