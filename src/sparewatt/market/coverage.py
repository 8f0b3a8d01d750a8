"""Whether the terms of a bid cover what is ordered: the check that admits a revealed bid.

Validators compare promises only; that the machine has what its provider promised is for the renter to see.
"""

from __future__ import annotations

from sparewatt.protocol.contracts.match import BidTerms, OrderTerms, Specification

COMPARED = ("gpus", "cpu_milli", "memory_mib", "disk_mib", "egress")
"""Members of both types, of which a bid must promise no less than is ordered."""


def first_shortfall(specification: Specification, terms: BidTerms, policy: OrderTerms) -> str | None:
    """The first member in which the terms fall short, or None if they cover the specification."""
    for name in COMPARED:
        if getattr(terms, name) < getattr(specification, name):
            return name
    return "reclaim_s" if terms.reclaim_s < policy.reclaim_s else None


def covers(specification: Specification, terms: BidTerms, policy: OrderTerms) -> bool:
    return first_shortfall(specification, terms, policy) is None
