# pragma version 0.4.3
"""
@title Roots of cumulative amounts, and the operator who posts them
@notice Roots are never deleted: claims against an old one stay valid. The operator hands over in two steps.
"""

from contracts.modules import tree

struct Root:
    root: bytes32
    count: uint256

struct Entry:
    account: address
    earned: uint256
    spent: uint256

event OperatorProposed:
    operator: indexed(address)

event OperatorChanged:
    operator: indexed(address)

COUNT_MAX: constant(uint256) = 2**20
ENTRY_TYPEHASH: constant(bytes32) = keccak256("Entry(address account,uint256 earned,uint256 spent)")

operator: public(address)
operator_next: public(address)
root_at: public(HashMap[uint256, HashMap[uint256, Root]])


@deploy
def __init__(operator: address):
    """
    @notice Set the first operator.
    @param operator The operator.
    """
    assert operator != empty(address), "ZERO_ADDRESS"
    self.operator = operator


@external
def propose_operator(operator: address):
    """
    @notice Propose the next operator, who then has to accept. Only the operator may call it.
    @param operator The account proposed.
    """
    self._require_operator()
    self.operator_next = operator
    log OperatorProposed(operator=operator)


@external
def accept_operator():
    """
    @notice Become the operator. Only the account proposed may call it.
    """
    assert msg.sender == self.operator_next, "NOT_OPERATOR"
    self.operator = msg.sender
    self.operator_next = empty(address)
    log OperatorChanged(operator=msg.sender)


@internal
@view
def _require_operator():
    assert msg.sender == self.operator, "NOT_OPERATOR"


@internal
def _keep(pool: uint256, epoch: uint256, root: bytes32, count: uint256):
    assert root != empty(bytes32) and count > 0 and count <= COUNT_MAX, "BAD_ROOT"
    self.root_at[pool][epoch] = Root(root=root, count=count)


@internal
@view
def _require_entry(pool: uint256, epoch: uint256, entry: Entry, index: uint256, path: DynArray[bytes32, 20]):
    posted: Root = self.root_at[pool][epoch]
    leaf: bytes32 = keccak256(abi_encode(ENTRY_TYPEHASH, entry.account, entry.earned, entry.spent))
    assert index < posted.count and tree._proves(posted.root, posted.count, leaf, index, path), "NOT_IN_ROOT"
