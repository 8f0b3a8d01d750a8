# pragma version 0.4.3
"""
@title Reads of an order, for the certificate and dispute contracts
"""

from contracts.interfaces import IOrders
from contracts.modules import lease_book
from contracts.modules import order_book

uses: lease_book
uses: order_book


@external
@view
def open_order(order_id: bytes32) -> IOrders.OpenOrder:
    """
    @notice What a certificate must agree with. It reverts if the order's auction is not open.
    @param order_id The order.
    @return The attempt, its start, and the versions that it was opened with.
    """
    order: order_book.Order = order_book._load(order_id)
    assert order.state == order_book.OPEN, "NOT_OPEN"
    return IOrders.OpenOrder(
        attempt=order.attempt,
        policy_hash=order.policy_hash,
        stake_version=order.stake_version,
        snapshot_epoch=order.snapshot_epoch,
        opened_at=order_book._opened_at(order_id, order.attempt),
    )


@external
@view
def order_facts(order_id: bytes32) -> IOrders.OrderFacts:
    """
    @notice What a dispute needs to know of an order, in any state.
    @param order_id The order.
    @return Renter, last attempt, and the highest price.
    """
    order: order_book.Order = order_book._load(order_id)
    return IOrders.OrderFacts(
        renter=order.renter,
        attempt=order.attempt,
        max_price_uusd=lease_book._load(order_id).max_rate_uusd,
    )
