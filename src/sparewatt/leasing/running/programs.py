"""What is known of a lease's program: what its node says now, and what its key signed when the start was confirmed.

Both are the provider's word. A renter who pays for a program that does not run, by that word, is told so at once; one
whose provider lies finds out by the log, a command or a port.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec

from sparewatt.leasing.running.act_intake import ReportedProgram
from sparewatt.market.chain_records import LeaseRecord
from sparewatt.protocol.link.lease_tasks import LeaseDetailsDocument, LeaseReport


class DetailsStore(Protocol):
    """Implemented by LeaseActStore."""

    async def find_details(self, order_id: str, details_hash: str) -> str | None: ...


@dataclass(frozen=True, slots=True)
class ProviderWord:
    report: LeaseReport | None
    """Of this term; None while its node has said nothing to this process."""
    details: LeaseDetailsDocument | None
    """Whose hash the chain has; None before the start is confirmed."""


@dataclass(frozen=True, slots=True)
class LeasePrograms:
    reports: Mapping[str, ReportedProgram]
    """By order."""
    store: DetailsStore

    def report_of(self, lease: LeaseRecord) -> LeaseReport | None:
        found = self.reports.get(lease.lease_id)
        return found.report if found is not None and found.report.term == lease.term else None

    async def word_of(self, lease: LeaseRecord) -> ProviderWord:
        """With a question to the database."""
        text = None
        if lease.details_hash is not None:
            text = await self.store.find_details(lease.lease_id, lease.details_hash)
        details = None if text is None else msgspec.json.decode(text, type=LeaseDetailsDocument)
        return ProviderWord(self.report_of(lease), details)
