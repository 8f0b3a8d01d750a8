# pragma version 0.4.3
"""
@title Streams of pay: how one is stored, and what is due of it
@notice Four words instead of seven: a lease writes it five times. Moves no money.
"""

struct Stream:
    payer: address
    payee: address
    rate_uusd: uint256  # per hour; zero when it does not run
    since: uint256
    end_at: uint256  # the agreed time is over
    paid: uint256  # since `since`
    deposit: uint256

HOUR_S: constant(uint256) = 3_600
M64: constant(uint256) = 2**64 - 1
M128: constant(uint256) = 2**128 - 1

parties: HashMap[bytes32, address]  # payer
flow: HashMap[bytes32, uint256]  # payee and rate in one word
clock: HashMap[bytes32, uint256]  # since, end_at and paid in one word
deposit_of: public(HashMap[bytes32, uint256])


@external
@view
def stream_of(lease_id: bytes32) -> Stream:
    """
    @notice Everything that is stored of a lease's stream of pay.
    @param lease_id The lease. It has the id of the order that it comes from.
    @return The stream; its rate is 0 while it does not run.
    """
    return self._load(lease_id)


@external
@view
def accrued(lease_id: bytes32) -> uint256:
    """
    @notice What a settlement now would move.
    @param lease_id The lease. It has the id of the order that it comes from.
    @return The amount in µUSD, before the fee.
    """
    return self._due(self._load(lease_id), block.timestamp)


@internal
@pure
def _due(stream: Stream, at: uint256) -> uint256:
    """Never more than the deposit, and never less than nothing: a later settlement may have gone beyond `at`."""
    end: uint256 = min(at, stream.end_at)
    if stream.rate_uusd == 0 or end <= stream.since:
        return 0
    earned: uint256 = stream.rate_uusd * (end - stream.since) // HOUR_S
    return min(earned - min(stream.paid, earned), stream.deposit)


@internal
@view
def _load(lease_id: bytes32) -> Stream:
    flow: uint256 = self.flow[lease_id]
    clock: uint256 = self.clock[lease_id]
    return Stream(
        payer=self.parties[lease_id],
        payee=convert(convert(flow >> 64, uint160), address),
        rate_uusd=flow & M64,
        since=clock >> 192,
        end_at=(clock >> 128) & M64,
        paid=clock & M128,
        deposit=self.deposit_of[lease_id],
    )


@internal
def _save(lease_id: bytes32, stream: Stream):
    """Rates are bounded by a policy and times are of this age, so everything fits its part; `paid` is below rate · time."""
    self.flow[lease_id] = (convert(convert(stream.payee, uint160), uint256) << 64) | stream.rate_uusd
    self.clock[lease_id] = (stream.since << 192) | (stream.end_at << 128) | stream.paid
    self.deposit_of[lease_id] = stream.deposit
