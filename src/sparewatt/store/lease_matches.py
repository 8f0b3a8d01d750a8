"""How auctions went, as gateways collected it from validators. One row per order and attempt, kept for a while."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparewatt.core.limits import KIB
from sparewatt.store.connection_pool import Store

MATCHES_KEPT_DAYS = 30
MATCHES_KEPT_MAX = 20_000
"""Rows; records go first."""
RECORDS_KEPT_MAX = 2_000
"""Whole records, up to 8 MB each: the newest."""
ATTEMPTS_LISTED_MAX = 64
CERTIFICATES_MAX = 64
VOTES_READ_BYTES_MAX = 256 * KIB
"""Of the evidence of an attempt whose votes are counted. One with more has a flood of lists in it."""
CERTIFICATE_LIFE_S = 900.0
"""Longer than an attempt on any network: a certificate is good for its attempt only."""


@dataclass(frozen=True, slots=True)
class LeaseMatchRow:
    order_id: str
    attempt: int
    version: int
    """Grows with every change."""
    evidence: str
    certificate: str | None
    record_from: str | None
    """The vote key of the validator whose record is kept."""


@dataclass(frozen=True, slots=True)
class StoredCertificate:
    order_id: str
    attempt: int
    certificate: str
    age_s: float


@dataclass(frozen=True, slots=True)
class StoredVotes:
    order_id: str
    attempt: int
    votes: str
    """The JSON list that the evidence has."""


class LeaseMatchStore(Store):
    async def save(
        self, order_id: str, attempt: int, *, opened_at: int, evidence: str, certificate: str | None = None
    ) -> None:
        """Replaces what was known; a certificate that is stored stays. The chain's process is woken by a new one."""
        await self._pool.execute("save_lease_match", order_id, attempt, opened_at, evidence, certificate)

    async def save_record(self, order_id: str, attempt: int, *, record: str, said_by: str) -> None:
        """The first one stays: others say the same, or are another's words."""
        await self._pool.execute("save_lease_match_record", order_id, attempt, record, said_by)

    async def find(self, order_id: str, attempt: int) -> LeaseMatchRow | None:
        return await self._pool.row_as(LeaseMatchRow, "find_lease_match", order_id, attempt)

    async def find_version(self, order_id: str, attempt: int) -> int:
        """0 if there is none."""
        return int(await self._pool.value("lease_match_version", order_id, attempt) or 0)

    async def find_record(self, order_id: str, attempt: int) -> str | None:
        found: str | None = await self._pool.value("find_lease_match_record", order_id, attempt)
        return found

    async def find_acceptance(self, order_id: str, attempt: int) -> tuple[str, int] | None:
        """The transaction and the time at which the chain took a certificate of the attempt."""
        row = await self._pool.row("find_acceptance", order_id, attempt)
        return None if row is None else ("0x" + row["tx_hash"].hex(), row["unix_s"])

    async def list_attempts(self, order_id: str) -> list[int]:
        rows = await self._pool.rows("lease_match_attempts", order_id, ATTEMPTS_LISTED_MAX)
        return sorted(row["attempt"] for row in rows)

    async def list_certificates(self) -> list[StoredCertificate]:
        """Those of the last minutes, the oldest first."""
        values: tuple[Any, ...] = (CERTIFICATE_LIFE_S, CERTIFICATES_MAX)
        return await self._pool.rows_as(StoredCertificate, "recent_certificates", *values)

    async def list_votes(self, *, limit: int) -> list[StoredVotes]:
        """Of the attempts that changed last, the newest first; without those that have too much evidence to be read."""
        return await self._pool.rows_as(StoredVotes, "recent_lease_votes", VOTES_READ_BYTES_MAX, limit)

    async def forget_old(self) -> None:
        await self._pool.execute("forget_lease_records", RECORDS_KEPT_MAX)
        await self._pool.execute("forget_lease_matches", MATCHES_KEPT_DAYS, MATCHES_KEPT_MAX)
