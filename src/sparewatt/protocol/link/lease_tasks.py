"""What gateway and node say to each other about a lease that is placed: its task, the node's signed acts, its report.

A task is the gateway's word on the chain. The node checks it against the order's id, and against a chain of its owner's
choice if there is one. An act is signed by the node's key and relayed as it is: a gateway can delay it, not change it.
A report is the node's word, for the renter's eyes; no money follows from it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from sparewatt.protocol.contracts.lease_content import SECRETS_MAX, VariableName
from sparewatt.protocol.link.lease_frames import CONTENT_CHARS_MAX, Hash, Height
from sparewatt.protocol.link.node_report import Address, Signature

DETAILS_CHARS_MAX = 16 * 1024
SEALED_CHARS_MAX = 160 * 1024
"""Hex digits of one lease's sealed secrets together: a frame carries them beside the content."""
TROUBLE_CHARS_MAX = 300
_INT64_MAX = (1 << 63) - 1

_Number = Annotated[int, Meta(ge=0, le=_INT64_MAX)]
_Uint32 = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]
_Hex = Annotated[str, Meta(pattern=r"^0x([0-9a-f]{2})*\Z", max_length=SEALED_CHARS_MAX)]


class TaskState(StrEnum):
    """Of a lease, as a node needs it."""

    PENDING = "pending"
    """Placed with this node, which has to confirm its start by `confirm_by`."""
    ACTIVE = "active"
    PAUSED = "paused"
    VACANT = "vacant"
    """Without a provider; this node is a stand-in, whose turn begins at `turn_at`."""
    OVER = "over"
    """Closed, or placed elsewhere: nothing of it may run here."""


class ProposedUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """What the renter wants to change. The node's owner decides by the same rules as for a bid."""

    spec_hash: Hash
    rate_uusd: _Number
    duration_s: _Uint32
    seq: _Uint32
    specification: Annotated[dict[str, Any], Meta(max_length=32)]
    content: Annotated[str, Meta(max_length=CONTENT_CHARS_MAX)]


class LeaseTask(msgspec.Struct, frozen=True, kw_only=True):
    """One lease, as the chain has it at `block_number`. Sent when it changes, with each new link, and again every 30 s.

    `renter`, `renter_nonce`, `policy` and `specification` hash to the order's id, as those of a lookup do.
    """

    order_id: Hash
    attempt: _Uint32
    term: _Uint32
    """Of a vacant lease: the term that ended."""
    state: TaskState
    renter: Address
    renter_nonce: _Number
    policy: Annotated[dict[str, Any], Meta(max_length=32)]
    specification: Annotated[dict[str, Any], Meta(max_length=32)]
    """As ordered; the running one if an update was accepted is `updated`."""
    content: Annotated[str, Meta(max_length=CONTENT_CHARS_MAX)]
    lease_moves: Address
    """The contract that takes `Accept`, `Resign` and `AcceptUpdate`; the others go to `deployment_order`."""
    rate_uusd: _Number
    confirm_by: _Number = 0
    turn_at: _Number = 0
    position: Annotated[int, Meta(ge=0, le=2)] = 0
    """Of this node among the candidates of the certificate."""
    paused_for_empty: bool = False
    may_close_at: _Number = 0
    """When the provider's notice is over; 0 without a notice."""
    ends_at: _Number = 0
    """When the agreed time is used up, while it runs; 0 otherwise."""
    acts_nonce: _Number = 0
    """The next number of the node key's signed acts at `deployment_order`."""
    moves_nonce: _Number = 0
    """… and at `lease_moves`."""
    sealed: Annotated[dict[VariableName, _Hex], Meta(max_length=SECRETS_MAX)] = {}
    """Secrets sealed to this node's key; those that the renter has not sent yet are missing."""
    updated: ProposedUpdate | None = None
    """The specification that runs after an accepted update."""
    proposed: ProposedUpdate | None = None
    block_number: Height = 0


class ActKind(StrEnum):
    CONFIRM = "confirm"
    """`ConfirmStart`, with the details whose hash it has."""
    ACCEPT = "accept"
    """`Accept`: this stand-in takes the vacant lease for the next term."""
    RESIGN = "resign"
    NOTICE = "notice"
    """`GiveNotice`."""
    CLOSE = "close"
    """`Close` as PROVIDER_RECLAIM, after the notice."""
    ACCEPT_UPDATE = "accept_update"


class LeaseAct(msgspec.Struct, frozen=True, kw_only=True):
    """A message that the node's key has signed, with what is needed to build it again and check the signature."""

    kind: ActKind
    order_id: Hash
    term: _Uint32
    signature: Signature
    nonce: _Number = 0
    deadline: _Number = 0
    """Unix seconds; 0 for messages without one."""
    details: Annotated[str, Meta(max_length=DETAILS_CHARS_MAX)] = ""
    """Of CONFIRM: a JSON document for the renter, `LeaseDetailsDocument`."""
    seq: _Uint32 = 0
    """Of ACCEPT_UPDATE."""


class ProgramPhase(StrEnum):
    WAITING = "waiting"
    """For secrets of the renter, or for the machine to be freed."""
    PULLING = "pulling"
    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    RESTARTING = "restarting"
    """The renter's program ended and is started again, later each time."""
    EXITED = "exited"
    """It ended and is not started again."""
    FAILED = "failed"
    """It cannot be started: image, command or secret."""
    STOPPED = "stopped"


class LeaseReport(msgspec.Struct, frozen=True, kw_only=True):
    order_id: Hash
    term: _Uint32
    phase: ProgramPhase
    since: _Number
    """Unix seconds, by the node's clock."""
    restarts: _Uint32 = 0
    exit_code: Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)] | None = None
    trouble: Annotated[str, Meta(max_length=TROUBLE_CHARS_MAX)] | None = None
    """In words, by the node; shown to the renter as such."""
    pulled_percent: Annotated[int, Meta(ge=0, le=100)] | None = None
    disk_used_mib: _Uint32 = 0


class LeaseDetailsDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a deployment stands when its start is confirmed. Its canonical JSON has the hash that the chain keeps."""

    started: bool
    """False: the resources are held, and the renter's own image, program or missing secret keeps it from running."""
    why: Annotated[str, Meta(max_length=TROUBLE_CHARS_MAX)] | None = None
    image_digest: Annotated[str, Meta(max_length=200)] | None = None
    engine: Annotated[str, Meta(max_length=100)] = ""
    ports: Annotated[tuple[Annotated[int, Meta(ge=1, le=65_535)], ...], Meta(max_length=32)] = ()
    disk: Annotated[str, Meta(max_length=20)] = "watched"
    version: int = 1
