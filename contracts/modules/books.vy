# pragma version 0.4.3
"""
@title Books on demand: the leaves behind an accepted root, or the signers pay
@notice A demand for a book costs a bond, which pays for the gas of publishing it. If the book is not published in time,
        all signers of the certificate are at fault.
"""

from contracts import awards
from contracts import match_rule
from contracts.modules import payouts
from contracts.modules import penalties
from contracts.modules import tree
from contracts.modules import vault

uses: payouts
uses: penalties
uses: vault

struct Demand:
    demander: address
    at: uint256
    bond: uint256  # not yet owed to an account
    published: bool

event BookDemanded:
    order_id: indexed(bytes32)
    attempt: indexed(uint256)
    demander: indexed(address)
    publish_by: uint256

event BookPublished:
    order_id: indexed(bytes32)
    attempt: indexed(uint256)
    publisher: indexed(address)

LEAVES_MAX: constant(uint256) = 255

BOOK_S: public(immutable(uint256))
BOOK_BOND: public(immutable(uint256))

demand_of: public(HashMap[bytes32, HashMap[uint32, Demand]])


@deploy
def __init__(book_s: uint256, book_bond: uint256):
    """
    @notice Set the terms of books.
    @param book_s How many seconds there are to publish a demanded book.
    @param book_bond What a demand costs, in µUSD.
    """
    assert book_s > 0 and book_bond > 0, "ZERO_AMOUNT"
    # The last moment of `punish_silence` must lie before stakes are free.
    assert 2 * book_s <= penalties.ATTEMPT_S + penalties.CHALLENGE_S, "BOOK_TIME_TOO_LONG"
    BOOK_S = book_s
    BOOK_BOND = book_bond


@external
@nonreentrant
def demand_book(order_id: bytes32, attempt: uint32):
    """
    @notice Demand the leaves behind an accepted root, for a bond of BOOK_BOND from the caller's allowance.
    @param order_id The order.
    @param attempt The number of the auction of this order, from 0.
    """
    accepted_at: uint256 = staticcall penalties.tasks.accepted_at(order_id, attempt)
    assert accepted_at > 0, "NOT_ACCEPTED"
    assert block.timestamp <= accepted_at + penalties.CHALLENGE_S, "TOO_LATE"
    assert self.demand_of[order_id][attempt].at == 0, "ALREADY_DEMANDED"
    self.demand_of[order_id][attempt] = Demand(demander=msg.sender, at=block.timestamp, bond=0, published=False)
    self.demand_of[order_id][attempt].bond = vault._receive(msg.sender, BOOK_BOND)
    log BookDemanded(
        order_id=order_id,
        attempt=convert(attempt, uint256),
        demander=msg.sender,
        publish_by=block.timestamp + BOOK_S,
    )


@external
@nonreentrant
def publish_book(
    task: match_rule.Task, record: awards.Record, leaves: DynArray[match_rule.BidLeaf, LEAVES_MAX]
):
    """
    @notice Publish a demanded book. The bond of the demand is owed to the caller.
    @param task What the validators voted on.
    @param record The record that the certificate left behind. Its hash must be the stored one.
    @param leaves All leaves of the task's tree, in their order.
    """
    demand: Demand = self._require_demand(task, record)
    assert block.timestamp <= demand.at + BOOK_S, "TOO_LATE"
    assert len(leaves) == convert(task.bid_count, uint256), "WRONG_COUNT"
    assert self._root_of(leaves) == task.bid_root, "WRONG_LEAVES"
    self.demand_of[task.order_id][task.attempt].published = True
    self.demand_of[task.order_id][task.attempt].bond = 0
    payouts._owe_openly(msg.sender, demand.bond)
    log BookPublished(order_id=task.order_id, attempt=convert(task.attempt, uint256), publisher=msg.sender)


@external
@nonreentrant
def punish_silence(task: match_rule.Task, record: awards.Record, votes: DynArray[awards.Vote, 32]):
    """
    @notice After a book was not published: give the bond back, and slash signers of the certificate.
    @dev Without votes it only gives the bond back.
    @param task What the validators voted on.
    @param record The record that the certificate left behind. Its hash must be the stored one.
    @param votes Votes for the task by the validators to punish; may be empty.
    """
    demand: Demand = self._require_demand(task, record)
    assert block.timestamp > demand.at + BOOK_S, "TOO_EARLY"
    self.demand_of[task.order_id][task.attempt].bond = 0
    payouts._owe_openly(demand.demander, demand.bond)
    if len(votes) > 0:
        assert block.timestamp <= demand.at + 2 * BOOK_S, "TOO_LATE"
        renter: address = (staticcall penalties.orders.order_facts(task.order_id)).renter
        penalties._punish_voters(task, record.round, votes, penalties.SILENCE, renter)


@internal
@view
def _require_demand(task: match_rule.Task, record: awards.Record) -> Demand:
    recorded: bytes32 = staticcall penalties.tasks.record_of(task.order_id, task.attempt)
    assert awards._record_hash(record) == recorded, "WRONG_RECORD"
    assert match_rule._task_hash(task) == record.task_hash, "WRONG_TASK"
    demand: Demand = self.demand_of[task.order_id][task.attempt]
    assert demand.at > 0, "NOT_DEMANDED"
    assert not demand.published, "ALREADY_PUBLISHED"
    return demand


@internal
@pure
def _root_of(leaves: DynArray[match_rule.BidLeaf, LEAVES_MAX]) -> bytes32:
    nodes: bytes32[256] = empty(bytes32[256])
    for i: uint256 in range(len(leaves), bound=LEAVES_MAX):
        nodes[i] = match_rule._leaf_hash(leaves[i])
    width: uint256 = 1 << tree._depth(len(leaves))
    for level: uint256 in range(8):
        if width == 1:
            break
        width = width // 2
        for i: uint256 in range(width, bound=128):
            nodes[i] = tree._node(nodes[2 * i], nodes[2 * i + 1])
    return nodes[0]
