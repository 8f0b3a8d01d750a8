# pragma version 0.4.3
"""
@title Validators: stake, vote keys, and their weight at every version
@notice Each change of anyone's weight makes a new version; older versions never change, so a certificate is checked
        against the stakes its order began with. Money that comes in is pending, without weight, until it is activated.
        A history entry is packed into one word, version in the high half and weight in the low half: a certificate
        reads two per signer. Moves no money.
"""

from contracts.modules import typed

struct Validator:  # stake, pending and unbonding can all be slashed
    vote_key: address
    stake: uint256  # weighs, unless the validator is jailed
    unbonding: uint256
    ready_at: uint256
    jailed: bool
    pending: uint256
    pending_since: uint256

event ValidatorChanged:
    operator: indexed(address)
    vote_key: indexed(address)
    url: String[200]

event StakeChanged:
    operator: indexed(address)
    vote_key: indexed(address)
    version: uint256
    weight: uint256
    total: uint256

event StakeMoved:
    operator: indexed(address)
    stake: uint256
    pending: uint256
    pending_since: uint256
    unbonding: uint256
    ready_at: uint256

event Displaced:
    operator: indexed(address)
    vote_key: indexed(address)

event Slashed:
    operator: indexed(address)
    vote_key: indexed(address)
    amount: uint256

VALIDATORS_MAX: constant(uint256) = 32  # a certificate's loop; beyond it the signature scheme has to change
REPLACES_NUMERATOR: constant(uint256) = 11  # a newcomer to a full set brings more than 11/10 of the lowest stake
REPLACES_DENOMINATOR: constant(uint256) = 10
VOTE_KEY_TYPEHASH: constant(bytes32) = keccak256("VoteKey(address operator,address voteKey)")
BPS: constant(uint256) = 10_000

MIN_STAKE: public(immutable(uint256))

version: public(uint256)
total_at: public(HashMap[uint256, uint256])
made_at: public(HashMap[uint256, uint256])  # when a version came
operators: public(DynArray[address, VALIDATORS_MAX])  # those with weight
validator_of: public(HashMap[address, Validator])
url_of: public(HashMap[address, String[200]])
operator_of: public(HashMap[address, address])  # of a vote key, for ever: old keys stay slashable
history_length: public(HashMap[address, uint256])
history: HashMap[address, HashMap[uint256, uint256]]


@deploy
def __init__(min_stake: uint256):
    """
    @notice Set the least stake.
    @param min_stake The least stake of a validator, in µUSD.
    """
    assert min_stake > 0, "ZERO_AMOUNT"
    MIN_STAKE = min_stake


# Reads


@external
@view
def history_at(vote_key: address, index: uint256) -> (uint256, uint256):
    """
    @notice One change of a vote key's weight.
    @param vote_key The key that signs votes.
    @param index The number of the change, from 0.
    @return The stake version from which it counts.
    @return The weight from that version on.
    """
    entry: uint256 = self.history[vote_key][index]
    return entry >> 128, entry & convert(max_value(uint128), uint256)


@external
@view
def weight_of(
    signers: DynArray[address, VALIDATORS_MAX], history_indices: DynArray[uint256, VALIDATORS_MAX], version: uint256
) -> uint256:
    """
    @notice The weight of several vote keys together at a stake version.
    @dev The signers must be distinct; the caller has to check that.
    @param signers The vote keys.
    @param history_indices For each of them, where its weight at that version is in its history.
    @param version A stake version.
    @return The sum of their weights.
    """
    assert len(signers) == len(history_indices), "LENGTHS_DIFFER"
    assert version <= self.version, "UNKNOWN_VERSION"
    weight: uint256 = 0
    for i: uint256 in range(len(signers), bound=VALIDATORS_MAX):
        weight += self._weight_at(signers[i], history_indices[i], version)
    return weight


@external
@view
def was_current(version: uint256, start: uint256, end: uint256) -> bool:
    """
    @notice Whether a stake version was the current one at some moment of a time.
    @param version A stake version.
    @param start The first Unix second of the time.
    @param end The last Unix second of the time.
    @return True if it was. Several versions may share a second.
    """
    assert version <= self.version, "UNKNOWN_VERSION"
    return self.made_at[version] <= end and (version == self.version or self.made_at[version + 1] >= start)


@external
@view
def all_operators() -> DynArray[address, VALIDATORS_MAX]:
    """
    @notice All validators with weight now.
    @return Their operators' addresses, in no particular order.
    """
    return self.operators


@internal
@view
def _weight_at(vote_key: address, index: uint256, version: uint256) -> uint256:
    assert index < self.history_length[vote_key], "NO_SUCH_HISTORY"
    entry: uint256 = self.history[vote_key][index]
    assert entry >> 128 <= version, "HISTORY_TOO_NEW"
    following: uint256 = self.history[vote_key][index + 1]
    assert following == 0 or version < following >> 128, "HISTORY_TOO_OLD"
    return entry & convert(max_value(uint128), uint256)


# Changes


@internal
def _join(operator: address, vote_key: address, vote_key_signature: Bytes[65], url: String[200], amount: uint256):
    assert self.validator_of[operator].vote_key == empty(address), "ALREADY_JOINED"
    self._claim_key(operator, vote_key, vote_key_signature)
    self.validator_of[operator].vote_key = vote_key
    self._set_url(operator, url)
    self._add_pending(operator, amount)


@internal
def _set_url(operator: address, url: String[200]):
    assert self.validator_of[operator].vote_key != empty(address), "NOT_VALIDATOR"
    assert len(url) > 0, "NO_URL"
    self.url_of[operator] = url
    log ValidatorChanged(operator=operator, vote_key=self.validator_of[operator].vote_key, url=url)


@internal
def _set_vote_key(operator: address, vote_key: address, vote_key_signature: Bytes[65]):
    """The new key counts from the next version; the old one has no weight from then on."""
    old: address = self.validator_of[operator].vote_key
    assert old != empty(address), "NOT_VALIDATOR"
    self._claim_key(operator, vote_key, vote_key_signature)
    weight: uint256 = self._last_weight(old)
    self.validator_of[operator].vote_key = vote_key
    if weight > 0:
        self._start_version(0, 0)
        self._remember(operator, old, 0)
        self._remember(operator, vote_key, weight)
    log ValidatorChanged(operator=operator, vote_key=vote_key, url=self.url_of[operator])


@internal
def _add_pending(operator: address, amount: uint256):
    """Without weight until `_activate`. The time starts anew for all that is pending."""
    validator: Validator = self.validator_of[operator]
    assert validator.vote_key != empty(address), "NOT_VALIDATOR"
    assert not validator.jailed, "JAILED"
    total: uint256 = validator.stake + validator.pending + amount
    assert total >= MIN_STAKE, "STAKE_TOO_SMALL"
    assert total <= convert(max_value(uint64), uint256), "STAKE_TOO_LARGE"  # 18 trillion dollars; keeps sums in a half word
    self.validator_of[operator].pending = validator.pending + amount
    self.validator_of[operator].pending_since = block.timestamp
    self._tell(operator)


@internal
def _activate(operator: address, activate_s: uint256):
    """Pending stake weighs from a new version on. In a full set it takes the lowest place, or nothing happens."""
    validator: Validator = self.validator_of[operator]
    assert validator.pending > 0, "NOTHING_PENDING"
    assert not validator.jailed, "JAILED"
    assert block.timestamp >= validator.pending_since + activate_s, "TOO_EARLY"
    old: uint256 = self._last_weight(validator.vote_key)
    stake: uint256 = validator.stake + validator.pending
    assert stake >= MIN_STAKE, "STAKE_TOO_SMALL"
    replaced: address = empty(address)
    freed: uint256 = 0
    if old == 0 and len(self.operators) == VALIDATORS_MAX:
        replaced = self._lowest()
        freed = self.validator_of[replaced].stake
        assert REPLACES_DENOMINATOR * stake > REPLACES_NUMERATOR * freed, "VALIDATORS_FULL"
    self.validator_of[operator].stake = stake
    self.validator_of[operator].pending = 0
    self._start_version(stake, old + freed)
    if replaced != empty(address):
        self._displace(replaced)
    self._remember(operator, validator.vote_key, stake)
    if old == 0:
        self.operators.append(operator)
    self._tell(operator)


@internal
def _displace(operator: address):
    """Takes a validator's place without a penalty: its stake is pending, and may return or leave."""
    validator: Validator = self.validator_of[operator]
    self.validator_of[operator].stake = 0
    self.validator_of[operator].pending = validator.pending + validator.stake
    self.validator_of[operator].pending_since = block.timestamp
    self._remember(operator, validator.vote_key, 0)
    self._remove(operator)
    log Displaced(operator=operator, vote_key=validator.vote_key)
    self._tell(operator)


@internal
def _start_unbonding(operator: address, amount: uint256, ready_at: uint256):
    """Pending money leaves first: it has no weight to lose."""
    validator: Validator = self.validator_of[operator]
    assert amount > 0, "ZERO_AMOUNT"
    assert amount <= validator.stake + validator.pending, "STAKE_TOO_SMALL"
    from_pending: uint256 = min(amount, validator.pending)
    rest: uint256 = validator.stake - (amount - from_pending)
    assert rest == 0 or rest >= MIN_STAKE or validator.jailed, "STAKE_TOO_SMALL"
    self.validator_of[operator].stake = rest
    self.validator_of[operator].pending = validator.pending - from_pending
    self.validator_of[operator].unbonding = validator.unbonding + amount
    self.validator_of[operator].ready_at = ready_at
    self._reweigh(operator)
    self._tell(operator)


@internal
def _finish_unbonding(operator: address) -> uint256:
    validator: Validator = self.validator_of[operator]
    assert validator.unbonding > 0, "NOTHING_UNBONDING"
    assert block.timestamp >= validator.ready_at, "TOO_EARLY"
    self.validator_of[operator].unbonding = 0
    self._tell(operator)
    return validator.unbonding


@internal
def _cut(vote_key: address, version: uint256, history_index: uint256, bps: uint256) -> uint256:
    """Takes a share of the weight that the key had at `version`, as far as it is still here, and jails its operator."""
    operator: address = self.operator_of[vote_key]
    weight: uint256 = self._weight_at(vote_key, history_index, version)
    assert weight > 0, "HAD_NO_WEIGHT"
    validator: Validator = self.validator_of[operator]
    amount: uint256 = min(weight * bps // BPS, validator.stake + validator.pending + validator.unbonding)
    from_stake: uint256 = min(amount, validator.stake)
    from_pending: uint256 = min(amount - from_stake, validator.pending)
    self.validator_of[operator].stake = validator.stake - from_stake
    self.validator_of[operator].pending = validator.pending - from_pending
    self.validator_of[operator].unbonding = validator.unbonding - (amount - from_stake - from_pending)
    self.validator_of[operator].jailed = True
    self._reweigh(operator)
    log Slashed(operator=operator, vote_key=vote_key, amount=amount)
    self._tell(operator)
    return amount


@internal
def _claim_key(operator: address, vote_key: address, vote_key_signature: Bytes[65]):
    """A vote key belongs to one operator, and signs that it does."""
    assert self.operator_of[vote_key] == empty(address), "KEY_TAKEN"
    content: bytes32 = keccak256(abi_encode(VOTE_KEY_TYPEHASH, operator, vote_key))
    assert typed._recover(typed._digest_of(self, content), vote_key_signature) == vote_key, "NOT_SIGNED_BY_VOTE_KEY"
    self.operator_of[vote_key] = operator


@internal
def _reweigh(operator: address):
    """After a fall of a stake. Weight rises by `_activate` only."""
    validator: Validator = self.validator_of[operator]
    old: uint256 = self._last_weight(validator.vote_key)
    new: uint256 = 0 if validator.jailed else validator.stake
    if new == old:
        return
    self._start_version(new, old)
    self._remember(operator, validator.vote_key, new)
    if new == 0:
        self._remove(operator)


@internal
def _start_version(added: uint256, removed: uint256):
    self.total_at[self.version + 1] = self.total_at[self.version] + added - removed
    self.version += 1
    self.made_at[self.version] = block.timestamp


@internal
def _remember(operator: address, vote_key: address, weight: uint256):
    length: uint256 = self.history_length[vote_key]
    self.history[vote_key][length] = (self.version << 128) | weight
    self.history_length[vote_key] = length + 1
    log StakeChanged(
        operator=operator, vote_key=vote_key, version=self.version, weight=weight, total=self.total_at[self.version]
    )


@internal
@view
def _last_weight(vote_key: address) -> uint256:
    length: uint256 = self.history_length[vote_key]
    if length == 0:
        return 0
    return self.history[vote_key][length - 1] & convert(max_value(uint128), uint256)


@internal
def _remove(operator: address):
    last: address = self.operators.pop()
    if last == operator:
        return
    for i: uint256 in range(len(self.operators), bound=VALIDATORS_MAX):
        if self.operators[i] == operator:
            self.operators[i] = last
            return


@internal
@view
def _lowest() -> address:
    """Of the validators with weight, the one with the lowest stake."""
    lowest: address = self.operators[0]
    least: uint256 = self.validator_of[lowest].stake
    for operator: address in self.operators:
        stake: uint256 = self.validator_of[operator].stake
        if stake < least:
            lowest = operator
            least = stake
    return lowest


@internal
def _tell(operator: address):
    validator: Validator = self.validator_of[operator]
    log StakeMoved(
        operator=operator,
        stake=validator.stake,
        pending=validator.pending,
        pending_since=validator.pending_since,
        unbonding=validator.unbonding,
        ready_at=validator.ready_at,
    )
