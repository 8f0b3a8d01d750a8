"""Whose turn it is to take a vacant lease: the candidates after its last provider, one after the other. Pure."""

from __future__ import annotations

from sparewatt.market.chain_records import LeaseRecord, MarketState, OrderRecord

NO_POSITION = -1


def turn_at(order: OrderRecord, lease: LeaseRecord, position: int) -> int:
    """When a stand-in may claim a vacant lease, as the contract counts it."""
    return lease.vacated_at + (position - lease.position - 1) * order.terms.standin_s


def position_of(state: MarketState, order: OrderRecord, node_key: str) -> int:
    """Of the provider with this node key among the candidates of the certificate; NO_POSITION if it is none."""
    chosen = order.certificate.record.chosen if order.certificate is not None else ()
    for position, award in enumerate(chosen):
        provider = state.providers.get(award.provider)
        if provider is not None and provider.node_key == node_key:
            return position
    return NO_POSITION
