"""What one validator publishes of providers: uptime by their heartbeats, reputation by leases that ended. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sparewatt.market.chain_records import MarketState, RegistryStatus
from sparewatt.market.snapshots.heartbeats import HeartbeatBook
from sparewatt.protocol.contracts.match import Observation, Observations
from sparewatt.protocol.contracts.message_ranges import ZONE_AS_CLAIMED
from sparewatt.protocol.contracts.snapshot_messages import SignedObservations
from sparewatt.protocol.signing import BadSignature, Domain, recover_address
from sparewatt.protocol.typed_message import message_digest
from sparewatt.trust.lease_record import lease_reputation_ppm


def observations_of(state: MarketState, book: HeartbeatBook, *, unix_s: int) -> tuple[Observation, ...]:
    """Rows for the ACTIVE providers of the final state, ascending; `unix_s` is the time of its block.

    A provider that was not heard long enough has no row: silence is for the prior, not for a guess.
    """
    rows = []
    for provider, record in sorted(state.providers.items(), key=lambda item: int(item[0], 16)):
        uptime_ppm = book.uptime_ppm(provider) if record.status is RegistryStatus.ACTIVE else None
        if uptime_ppm is not None:
            reputation_ppm = lease_reputation_ppm(state.ended_terms.get(provider, ()), unix_s=unix_s)
            rows.append(Observation(provider.lower(), uptime_ppm, reputation_ppm, ZONE_AS_CLAIMED))
    return tuple(rows)


def signer_of(signed: SignedObservations, domain: Domain) -> str | None:
    """The vote key, in lower case. None if nobody signed it."""
    try:
        return recover_address(message_digest(domain, signed.observations), signed.signature)
    except BadSignature:
        return None


def by_signer(
    published: Iterable[SignedObservations], *, domain: Domain, epoch: int, weights: Mapping[str, int]
) -> dict[str, Observations] | None:
    """Each validator's observations. None unless all are of the epoch, each by another validator that has weight."""
    found: dict[str, Observations] = {}
    for signed in published:
        signer = signer_of(signed, domain)
        if signer is None or signer in found or not weights.get(signer) or signed.observations.epoch != epoch:
            return None
        found[signer] = signed.observations
    return found
