"""Whether a running lease may go on under the terms that its renter proposes. Pure.

The rules are those of a bid: the price of the standing offer at least, no longer than the owner leases. What is to run
stays as it is: a proposal of another specification is not accepted by this release.
"""

from __future__ import annotations

from collections.abc import Callable

from sparewatt.node.leases.capacity import LeaseCapacity
from sparewatt.node.leases.offer_rules import LeaseRules, MachineFacts, standing_offer
from sparewatt.node.leases.placed.task_check import CheckedTask
from sparewatt.protocol.link.lease_tasks import ProposedUpdate
from sparewatt.protocol.typed_message import struct_hash

AcceptsUpdate = Callable[[CheckedTask, ProposedUpdate], bool]
_NOTHING = LeaseCapacity(0, 0, 0, 0)


def never_accepts(_checked: CheckedTask, _update: ProposedUpdate) -> bool:
    return False


def is_acceptable(update: ProposedUpdate, checked: CheckedTask, rules: LeaseRules, machine: MachineFacts) -> bool:
    """A lease that its owner has given notice of is not lengthened, nor one of a renter that it refuses by now."""
    task, specification = checked.task, checked.specification
    if update.spec_hash != "0x" + struct_hash(specification).hex() or task.may_close_at:
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
