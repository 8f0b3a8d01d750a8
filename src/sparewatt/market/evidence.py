"""What records of validators prove against anybody, judged by what the chain says of the attempt.

Weights and node keys come from the chain alone: a record that brings its own accuses nobody. The snapshot's table and
the policy come from whichever record has those that the chain names by their hashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sparewatt.market.chain_records import MarketState, OrderRecord
from sparewatt.market.faults import ProvenFault, find_faults, silence
from sparewatt.market.match.model import AuctionContext
from sparewatt.market.match.record import AuctionRecord
from sparewatt.market.match.replay import pool_of
from sparewatt.market.rule import snapshot_tree
from sparewatt.protocol.signing import Domain
from sparewatt.protocol.typed_message import struct_hash


class EvidenceUnavailable(ValueError):
    """Nothing can be judged: the chain does not know the attempt, or no record agrees with it."""


def evidence_of(
    state: MarketState,
    order_id: str,
    attempt: int,
    *,
    domain: Domain,
    version: int,
    records: Sequence[AuctionRecord],
    is_book_overdue: bool = False,
) -> tuple[ProvenFault, ...]:
    """Every fault that the records prove. `version` is the attempt's stake version. Raises EvidenceUnavailable."""
    order = state.orders.get(order_id.lower())
    if order is None or attempt not in order.opened_at:
        raise EvidenceUnavailable("the chain does not have this attempt, or it is too old")
    context = _context_by_chain(state, order, attempt, domain=domain, version=version, records=records)
    certificate = order.certificate
    accepted = certificate.record if certificate is not None and certificate.attempt == attempt else None
    hints = (state.weight_of(vote_key, version) for vote_key in context.weights)
    indices = {each.vote_key.lower(): each.history_index for each in hints if each is not None}
    pool = pool_of(records, context=context)
    faults = find_faults(pool, indices=indices, accepted=accepted)
    known = pool.tasks.get(accepted.task_hash) if accepted is not None else None
    if not is_book_overdue or accepted is None or known is None:
        return faults
    overdue = silence(pool, known.task, accepted, indices=indices)
    return faults if overdue is None else (*faults, overdue)


def _context_by_chain(
    state: MarketState,
    order: OrderRecord,
    attempt: int,
    *,
    domain: Domain,
    version: int,
    records: Sequence[AuctionRecord],
) -> AuctionContext:
    found = next((each.context for each in records if _is_of_chain(state, order, attempt, each.context)), None)
    if found is None:
        raise EvidenceUnavailable("no record agrees with what the chain says of the order and its snapshot")
    try:
        weights = {each.vote_key.lower(): each.weight for each in state.weights_at(version)}
    except KeyError:
        raise EvidenceUnavailable(f"stake version {version} is not known") from None
    opened_at = order.opened_at[attempt]
    keys = ((provider, record.node_key_at(opened_at)) for provider, record in state.providers.items())
    return replace(
        found,
        domain=domain,
        stake_version=version,
        weights=weights,
        node_keys={provider.lower(): key.lower() for provider, key in keys if key is not None},
    )


def _is_of_chain(state: MarketState, order: OrderRecord, attempt: int, context: AuctionContext) -> bool:
    """Whether policy and table are those that the chain names by their hashes.

    The chain keeps the policy of the newest attempt only; of an older one a contract still judges by the task's hash.
    """
    snapshot = state.snapshots.get(context.snapshot_epoch)
    if (context.order_id, context.attempt) != (bytes.fromhex(order.order_id[2:]), attempt) or snapshot is None:
        return False
    is_newest = attempt == order.attempt
    if is_newest and (context.terms, context.snapshot_epoch) != (order.terms, order.snapshot_epoch):
        return False
    root = bytes.fromhex(snapshot.root[2:])
    if context.snapshot_root != root or struct_hash(context.terms) != context.policy_hash:
        return False
    return snapshot_tree(context.profiles.values())[1].root == root
