# pragma version 0.4.3
"""
@title Roots of cumulative amounts, and the operator who posts them
@notice A root counts once it is ripe, ROOT_DELAY_S after it was posted. From then on it is never deleted: claims
        against an old one stay valid. The operator hands over in two steps.
"""

from contracts.modules import tree

struct Root:
    root: bytes32
    count: uint256
    ripe_at: uint256

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

ROOT_DELAY_S: public(immutable(uint256))

operator: public(address)
operator_next: public(address)
root_at: public(HashMap[uint256, HashMap[uint256, Root]])


@deploy
def __init__(operator: address, root_delay_s: uint256):
    """
    @notice Set the first operator, and the delay of roots.
    @param operator The operator.
    @param root_delay_s How many seconds a root waits before it counts.
    """
    assert operator != empty(address), "ZERO_ADDRESS"
    ROOT_DELAY_S = root_delay_s
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
def _keep(pool: uint256, epoch: uint256, root: bytes32, count: uint256) -> uint256:
    """Returns when the root counts."""
    assert root != empty(bytes32) and count > 0 and count <= COUNT_MAX, "BAD_ROOT"
    ripe_at: uint256 = block.timestamp + ROOT_DELAY_S
    self.root_at[pool][epoch] = Root(root=root, count=count, ripe_at=ripe_at)
    return ripe_at


@internal
def _delete(pool: uint256, epoch: uint256):
    self.root_at[pool][epoch] = empty(Root)


@internal
@view
def _is_ripe(pool: uint256, epoch: uint256) -> bool:
    return block.timestamp >= self.root_at[pool][epoch].ripe_at


@internal
@view
def _require_entry(pool: uint256, epoch: uint256, entry: Entry, index: uint256, path: DynArray[bytes32, 20]):
    posted: Root = self.root_at[pool][epoch]
    assert block.timestamp >= posted.ripe_at, "ROOT_NOT_RIPE"
    leaf: bytes32 = keccak256(abi_encode(ENTRY_TYPEHASH, entry.account, entry.earned, entry.spent))
    assert index < posted.count and tree._proves(posted.root, posted.count, leaf, index, path), "NOT_IN_ROOT"
