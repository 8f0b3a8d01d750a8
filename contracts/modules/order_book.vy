# pragma version 0.4.3
"""
@title Orders: how one is stored, and the bounds of a policy
@notice Four words per order and one per attempt, since each word written costs as much as two signatures. No calls,
        no money.
"""

from contracts import match_rule

struct Order:
    renter: address
    state: uint256
    attempts_max: uint256
    attempt: uint256
    stake_version: uint256
    snapshot_epoch: uint256
    expires_at: uint256
    policy_hash: bytes32
    spec_hash: bytes32

OPEN: constant(uint256) = 1
MATCHED: constant(uint256) = 2
UNMATCHED: constant(uint256) = 3
CLOSED: constant(uint256) = 4
EXPIRED: constant(uint256) = 5

M8: constant(uint256) = 2**8 - 1
M32: constant(uint256) = 2**32 - 1
M64: constant(uint256) = 2**64 - 1

order_count: public(HashMap[address, uint256])  # of a renter: the nonce in an order's id
who: HashMap[bytes32, uint256]
clock: HashMap[bytes32, uint256]
policy_hash: HashMap[bytes32, bytes32]
spec_hash: HashMap[bytes32, bytes32]
openings: HashMap[bytes32, HashMap[uint256, uint256]]  # of each attempt, for its evidence: stake version and time


@external
@view
def order_of(order_id: bytes32) -> Order:
    """
    @notice Everything that is stored of an order.
    @param order_id The order.
    @return The order; its state is 0 if there is none.
    """
    return self._load(order_id)


@external
@view
def opened_at(order_id: bytes32, attempt: uint256) -> uint256:
    """
    @notice When an auction of an order was opened.
    @param order_id The order.
    @param attempt The number of the auction of this order, from 0.
    @return Unix seconds; 0 if there is no such auction.
    """
    return self._opened_at(order_id, attempt)


@external
@view
def stake_version_at(order_id: bytes32, attempt: uint256) -> uint256:
    """
    @notice The stake version that decides an auction of an order.
    @param order_id The order.
    @param attempt The number of the auction of this order, from 0.
    @return The version that was current when it was opened; 0 if there is no such auction.
    """
    return self.openings[order_id][attempt] >> 64


@internal
@view
def _opened_at(order_id: bytes32, attempt: uint256) -> uint256:
    return self.openings[order_id][attempt] & M64


@internal
def _note_opening(order_id: bytes32, attempt: uint256, stake_version: uint256):
    self.openings[order_id][attempt] = (stake_version << 64) | block.timestamp


@internal
@pure
def _require_policy(p: match_rule.Policy):
    """The bounds of a policy, so that no sum or product of the rule overflows and no deadline is absurd."""
    assert p.max_price_uusd >= 1 and p.max_price_uusd < 2**40, "BAD_MAX_PRICE"
    assert p.latency_value < 2**20, "BAD_LATENCY_VALUE"
    assert p.payment_rule <= 1, "BAD_PAYMENT_RULE"
    assert p.min_uptime_ppm <= 10**6 and p.min_reputation_ppm <= 10**6, "BAD_PPM"
    assert p.commit_ms >= 100 and p.commit_ms <= 60_000, "BAD_WINDOW"
    assert p.reveal_ms >= 100 and p.reveal_ms <= 60_000, "BAD_WINDOW"
    assert p.start_s >= 10 and p.start_s <= 3_600, "BAD_START_TIME"
    assert p.standin_s >= 10 and p.standin_s <= 3_600, "BAD_START_TIME"
    assert p.down_s >= 5 and p.down_s <= 3_600, "BAD_DOWN_TIME"
    assert p.reclaim_s <= 30 * 86_400 and p.empty_grace_s <= 30 * 86_400, "BAD_GRACE_TIME"
    assert p.duration_s >= 60, "BAD_DURATION"


@internal
def _new_id(renter: address, policy_hash: bytes32, spec_hash: bytes32) -> bytes32:
    nonce: uint256 = self.order_count[renter]
    self.order_count[renter] = nonce + 1
    return keccak256(abi_encode(chain.id, self, renter, nonce, policy_hash, spec_hash))


@internal
@view
def _load(order_id: bytes32) -> Order:
    who: uint256 = self.who[order_id]
    clock: uint256 = self.clock[order_id]
    return Order(
        renter=convert(convert(who >> 96, uint160), address),
        state=(who >> 88) & M8,
        attempts_max=(who >> 80) & M8,
        attempt=who & M32,
        stake_version=clock >> 224,
        snapshot_epoch=(clock >> 192) & M32,
        expires_at=clock & M64,
        policy_hash=self.policy_hash[order_id],
        spec_hash=self.spec_hash[order_id],
    )


@internal
def _create(order_id: bytes32, order: Order):
    self.policy_hash[order_id] = order.policy_hash
    self.spec_hash[order_id] = order.spec_hash
    self._save(order_id, order)


@internal
def _save(order_id: bytes32, order: Order):
    """All but the two hashes: one changes elsewhere, the other never. Every field was bounded where it came in."""
    renter: uint256 = convert(convert(order.renter, uint160), uint256) << 96
    counts: uint256 = (order.attempts_max << 80) | order.attempt
    self.who[order_id] = renter | (order.state << 88) | counts
    versions: uint256 = (order.stake_version << 224) | (order.snapshot_epoch << 192)
    self.clock[order_id] = versions | order.expires_at
