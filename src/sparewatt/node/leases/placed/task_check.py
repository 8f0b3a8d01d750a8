"""Checks a task against itself: the order's id covers what was ordered, the specification its content. Pure.

So a gateway can hold a task back, but not have a node run something else. State, term and times are its word, or that
of a chain of the owner's choice.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparewatt.core.errors import InvalidField
from sparewatt.node.leases.capacity import LeaseCapacity, capacity_of
from sparewatt.node.leases.lookup_check import FalseLookup
from sparewatt.node.leases.runtime.model import ContainerPlan, LeaseLabel, RestartRule
from sparewatt.protocol.contracts.lease_content import LeaseContent, content_hash_of, read_content
from sparewatt.protocol.contracts.match import OrderTerms, Specification, order_id_of
from sparewatt.protocol.contracts.message_json import read_message
from sparewatt.protocol.contracts.sealed_secrets import SecretContext, open_secret, read_named_secret
from sparewatt.protocol.link.lease_frames import MarketFacts
from sparewatt.protocol.link.lease_tasks import LeaseTask, ProposedUpdate
from sparewatt.protocol.signing import SigningKey
from sparewatt.protocol.typed_message import struct_hash

EGRESS_PUBLIC = 1
GATEWAY_VARIABLE = "SPAREWATT_NODE_GATEWAY_URL"
"""Tells a node in a lease which gateway it reaches: the one of the machine's agent."""


class FalseTask(FalseLookup):
    """The task is not of the order that it names. Its text says in what."""


@dataclass(frozen=True, slots=True)
class CheckedTask:
    task: LeaseTask
    terms: OrderTerms
    specification: Specification
    """What is to run: after an accepted update, the updated one."""
    content: LeaseContent | None
    """None: what the renter signed is no document that a node understands."""

    @property
    def capacity(self) -> LeaseCapacity:
        return capacity_of(self.specification)

    @property
    def content_hash(self) -> str:
        """0x…, of what is to run."""
        return "0x" + self.specification.content_hash.hex()

    @property
    def key(self) -> tuple[bytes, int]:
        return bytes.fromhex(self.task.order_id[2:]), self.task.attempt


def check_task(task: LeaseTask, facts: MarketFacts) -> CheckedTask:
    """Raises FalseTask."""
    try:
        terms = read_message(OrderTerms, task.policy)
        ordered = read_message(Specification, task.specification)
    except InvalidField as error:
        raise FalseTask(f"out of range: {error.message[:200]}") from None
    order_id = order_id_of(
        chain_id=facts.chain_id,
        orders=facts.deployment_order,
        renter=task.renter,
        renter_nonce=task.renter_nonce,
        policy_hash=struct_hash(terms),
        spec_hash=struct_hash(ordered),
    )
    if "0x" + order_id.hex() != task.order_id:
        raise FalseTask("renter, policy or specification are not those of the order's id")
    _require_content(task.content, ordered)
    if task.updated is None:
        return CheckedTask(task, terms, ordered, _content(task.content))
    return CheckedTask(task, terms, checked_update(task.updated), _content(task.updated.content))


def checked_update(update: ProposedUpdate) -> Specification:
    """The specification that an update names. Raises FalseTask."""
    try:
        specification = read_message(Specification, update.specification)
    except InvalidField as error:
        raise FalseTask(f"out of range: {error.message[:200]}") from None
    if "0x" + struct_hash(specification).hex() != update.spec_hash:
        raise FalseTask("the update's specification is not what it names")
    _require_content(update.content, specification)
    return specification


def _require_content(text: str, specification: Specification) -> None:
    if content_hash_of(text) != specification.content_hash:
        raise FalseTask("the content is not what the specification names")


def _content(text: str) -> LeaseContent | None:
    try:
        return read_content(text)
    except InvalidField:
        return None


def missing_secrets(checked: CheckedTask) -> tuple[str, ...]:
    """Names that the renter has not sent yet."""
    names = checked.content.secrets if checked.content is not None else ()
    return tuple(name for name in names if name not in checked.task.sealed)


def open_secrets(checked: CheckedTask, *, key: SigningKey, provider: str) -> dict[str, str]:
    """By name. Raises ValueError if one was not sealed to this node for this order, or is not text."""
    context = SecretContext(checked.key[0], checked.task.attempt, provider)
    names = checked.content.secrets if checked.content is not None else ()
    opened = {}
    for name in names:
        sealed = bytes.fromhex(checked.task.sealed[name][2:])
        opened[name] = read_named_secret(open_secret(sealed, node_key=key, context=context), name)
    return opened


def label_of(task: LeaseTask, *, node: str) -> LeaseLabel:
    return LeaseLabel(lease_id=task.order_id, term=task.term, attempt=task.attempt, node=node)


def joins_network(content: LeaseContent | None) -> bool:
    """Whether its program may open a node's link to the gateway."""
    return content is not None and content.gateway is True


def plan_of(
    checked: CheckedTask,
    content: LeaseContent,
    *,
    node: str,
    secrets: dict[str, str],
    gpu_ids: tuple[str, ...],
    gateway_url: str,
) -> ContainerPlan:
    """`gateway_url`: where a lease gets that may reach the gateway."""
    specification = checked.specification
    told = {GATEWAY_VARIABLE: gateway_url} if joins_network(content) else {}
    return ContainerPlan(
        label=label_of(checked.task, node=node),
        image=content.image,
        command=content.command,
        env={**content.env, **secrets, **told},
        cpu_milli=specification.cpu_milli,
        memory_mib=specification.memory_mib,
        disk_mib=specification.disk_mib,
        gpu_ids=gpu_ids,
        ports=content.ports,
        egress=specification.egress == EGRESS_PUBLIC,
        read_only=content.read_only,
        restart=RestartRule(content.restart),
        agent_port=joins_network(content),
        content=checked.content_hash,
    )
