"""Whether a running lease may go on under the terms that its renter proposes. Pure.

The rules are those of a bid: the price of the standing offer at least, no longer than the owner leases, no image that
the owner refuses. Another program may run, within what was ordered for the first: its size stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sparewatt.core.errors import InvalidField
from sparewatt.node.leases.capacity import LeaseCapacity
from sparewatt.node.leases.offer_rules import LeaseRules, MachineFacts, is_refused_image, standing_offer
from sparewatt.node.leases.placed.task_check import CheckedTask, FalseTask, checked_update
from sparewatt.protocol.contracts.lease_content import read_content
from sparewatt.protocol.contracts.match import Specification
from sparewatt.protocol.link.lease_tasks import ProposedUpdate
from sparewatt.protocol.typed_message import struct_hash

AcceptsUpdate = Callable[[CheckedTask, ProposedUpdate], bool]
_NOTHING = LeaseCapacity(0, 0, 0, 0)


def never_accepts(_checked: CheckedTask, _update: ProposedUpdate) -> bool:
    return False


def is_acceptable(update: ProposedUpdate, checked: CheckedTask, rules: LeaseRules, machine: MachineFacts) -> bool:
    """A lease that its owner has given notice of is not changed, nor one of a renter that it refuses by now."""
    task, specification = checked.task, checked.specification
    is_same = update.spec_hash == "0x" + struct_hash(specification).hex()
    if task.may_close_at or not (is_same or _may_run(update, specification, rules)):
        return False
    if update.duration_s > rules.longest_s or task.renter.lower() in rules.refused_tenants:
        return False
    offer = standing_offer(rules, machine, reserved=_NOTHING)
    price = offer.hourly_uusd(
        gpus=specification.gpus,
        cpu_milli=specification.cpu_milli,
        duration_s=max(update.duration_s, checked.terms.duration_s),
    )
    return price is not None and update.rate_uusd >= price


def _may_run(update: ProposedUpdate, running: Specification, rules: LeaseRules) -> bool:
    """Another program on the same part of the machine: the capacity was promised, and stays as it is."""
    try:
        wanted = checked_update(update)
        content = read_content(update.content)
    except (FalseTask, InvalidField):
        return False
    is_same_size = replace(wanted, content_hash=running.content_hash) == running
    return is_same_size and not is_refused_image(content.image, rules.refused_images)
