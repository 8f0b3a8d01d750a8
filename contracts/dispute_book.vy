# pragma version 0.4.3
# pragma evm-version prague
"""
@title Books on demand, and faults of bidders
@notice The second half of `dispute`: one contract with all of it would be larger than a chain takes. It holds the bonds
        of those who demand a book, and nothing else.
"""

from contracts.modules import bid_faults
from contracts.modules import books
from contracts.modules import payouts
from contracts.modules import penalties
from contracts.modules import twins
from contracts.modules import vault

initializes: twins
initializes: vault
initializes: payouts[twins := twins, vault := vault]
initializes: penalties
initializes: books[payouts := payouts, penalties := penalties, vault := vault]
initializes: bid_faults[penalties := penalties]
exports: (
    twins.nonces, twins.DOMAIN_SEPARATOR,
    vault.token, vault.held, vault.solvent,
    payouts.owed, payouts.withdraw, payouts.withdraw_with_signature,
    penalties.stakes, penalties.registry, penalties.orders, penalties.tasks, penalties.ATTEMPT_S,
    penalties.CHALLENGE_S, penalties.punished,
    books.BOOK_S, books.BOOK_BOND, books.demand_of, books.demand_book, books.publish_book, books.punish_silence,
    bid_faults.prove_two_commits, bid_faults.forfeit_bid,
)


@deploy
def __init__(
    token: address,
    stakes: address,
    registry: address,
    orders: address,
    tasks: address,
    book_s: uint256,
    book_bond: uint256,
):
    """
    @notice Set the contracts that this one works with, and the terms of books, for good.
    @param token The ERC-20 of this deployment, with six decimals.
    @param stakes The stake registry.
    @param registry The provider registry.
    @param orders The order contract.
    @param tasks The task manager.
    @param book_s How many seconds there are to publish a demanded book.
    @param book_bond What a demand costs, in µUSD.
    """
    vault.__init__(token)
    penalties.__init__(stakes, registry, orders, tasks)
    books.__init__(book_s, book_bond)
