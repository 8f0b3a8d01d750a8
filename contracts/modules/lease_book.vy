# pragma version 0.4.3
"""
@title Leases: how one is stored
@notice Three words per lease, as for orders. The policy's terms of a lease are stored with the order, so that later
        calls need not pass the policy again. No calls, no money.
"""

from contracts import match_rule

struct Lease:
    provider: address
    state: uint256
    position: uint256  # among the candidates
    pause_reason: uint256
    resumed: bool  # it waits for a start after a pause: no reservation was promised
    term: uint256  # counts the providers it had
    confirm_by: uint256  # of a vacant lease: when the stand-ins' time is over
    running_since: uint256
    paused_at: uint256
    notice_at: uint256
    vacated_at: uint256  # the stand-ins' turns are counted from it
    rate_uusd: uint256
    max_rate_uusd: uint256
    locked_uusd: uint256
    duration_left_s: uint256
    reclaim_s: uint256
    empty_grace_s: uint256
    start_s: uint256
    standin_s: uint256
    down_s: uint256

PENDING: constant(uint256) = 1
ACTIVE: constant(uint256) = 2
PAUSED: constant(uint256) = 3
UNPLACED: constant(uint256) = 4
CLOSED: constant(uint256) = 5
VACANT: constant(uint256) = 6

M8: constant(uint256) = 2**8 - 1
M16: constant(uint256) = 2**16 - 1  # waits of an hour at most
M24: constant(uint256) = 2**24 - 1  # waits of a month at most
M32: constant(uint256) = 2**32 - 1
M40: constant(uint256) = 2**40 - 1  # prices
M48: constant(uint256) = 2**48 - 1  # Unix seconds

who: HashMap[bytes32, uint256]
clock: HashMap[bytes32, uint256]
terms: HashMap[bytes32, uint256]


@external
@view
def lease_of(lease_id: bytes32) -> Lease:
    """
    @notice Everything that is stored of a lease.
    @param lease_id The lease. It has the id of the order that it comes from.
    @return The lease; its state is 0 until it was placed with a provider.
    """
    return self._load(lease_id)


@internal
@view
def _load(lease_id: bytes32) -> Lease:
    who: uint256 = self.who[lease_id]
    clock: uint256 = self.clock[lease_id]
    terms: uint256 = self.terms[lease_id]
    return Lease(
        provider=convert(convert(who >> 96, uint160), address),
        state=(who >> 56) & M8,
        position=(who >> 48) & M8,
        pause_reason=(who >> 40) & M8,
        resumed=(who >> 32) & 1 == 1,
        term=who & M32,
        confirm_by=(clock >> 192) & M48,
        running_since=(clock >> 144) & M48,
        paused_at=(clock >> 96) & M48,
        notice_at=(clock >> 48) & M48,
        vacated_at=clock & M48,
        rate_uusd=(terms >> 208) & M40,
        max_rate_uusd=(terms >> 168) & M40,
        locked_uusd=(terms >> 128) & M40,
        duration_left_s=(terms >> 96) & M32,
        reclaim_s=(terms >> 72) & M24,
        empty_grace_s=(terms >> 48) & M24,
        start_s=(terms >> 32) & M16,
        standin_s=(terms >> 16) & M16,
        down_s=terms & M16,
    )


@internal
def _save(lease_id: bytes32, lease: Lease):
    """Every field was bounded where it came in: prices by 2**40, waits by the bounds of a policy."""
    provider: uint256 = convert(convert(lease.provider, uint160), uint256) << 96
    states: uint256 = (lease.state << 56) | (lease.position << 48)
    pause: uint256 = (lease.pause_reason << 40) | (convert(lease.resumed, uint256) << 32)
    self.who[lease_id] = provider | states | pause | lease.term
    starts: uint256 = (lease.confirm_by << 192) | (lease.running_since << 144)
    ends: uint256 = (lease.paused_at << 96) | (lease.notice_at << 48)
    self.clock[lease_id] = starts | ends | lease.vacated_at
    prices: uint256 = (lease.rate_uusd << 208) | (lease.max_rate_uusd << 168)
    amounts: uint256 = (lease.locked_uusd << 128) | (lease.duration_left_s << 96)
    graces: uint256 = (lease.reclaim_s << 72) | (lease.empty_grace_s << 48)
    waits: uint256 = (lease.start_s << 32) | (lease.standin_s << 16)
    self.terms[lease_id] = prices | amounts | graces | waits | lease.down_s


@internal
@view
def _notice_is_over(lease: Lease) -> bool:
    return lease.notice_at > 0 and block.timestamp >= lease.notice_at + lease.reclaim_s


@internal
@pure
def _duration_left_s(lease: Lease, at: uint256) -> uint256:
    """What is left of the agreed time if the lease stops running at `at`."""
    if lease.state != ACTIVE or at <= lease.running_since:
        return lease.duration_left_s
    return lease.duration_left_s - min(at - lease.running_since, lease.duration_left_s)


@internal
def _note_terms(order_id: bytes32, policy: match_rule.Policy):
    """Store the policy's terms that the later lease needs."""
    lease: Lease = empty(Lease)
    lease.max_rate_uusd = convert(policy.max_price_uusd, uint256)
    lease.duration_left_s = convert(policy.duration_s, uint256)
    lease.reclaim_s = convert(policy.reclaim_s, uint256)
    lease.empty_grace_s = convert(policy.empty_grace_s, uint256)
    lease.start_s = convert(policy.start_s, uint256)
    lease.standin_s = convert(policy.standin_s, uint256)
    lease.down_s = convert(policy.down_s, uint256)
    self._save(order_id, lease)
