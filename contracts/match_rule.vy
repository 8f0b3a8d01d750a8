# pragma version 0.4.3
"""
@title The rule of a match: who may win, who comes first, what is paid
@notice Pure. `sparewatt.market.rule` is the same rule in Python, and tests compare the two. Prices are µUSD per hour
        for the whole lease. Nothing is stored, and no other contract computes a score.
"""

struct Policy:
    countries: uint256
    tiers: uint256
    gpu_models: uint256
    min_gpu_class: uint8
    min_vram_gb: uint16
    gpu_units: uint16
    compliance: uint256
    min_uptime_ppm: uint32
    min_reputation_ppm: uint32
    max_price_uusd: uint64
    latency_value: uint32
    rtt_row: bytes32
    payment_rule: uint8
    commit_ms: uint32
    reveal_ms: uint32
    start_s: uint32
    standin_s: uint32
    down_s: uint32
    reclaim_s: uint32
    empty_grace_s: uint32
    duration_s: uint32
    only: DynArray[address, 8]
    ignore: DynArray[address, 8]

struct Profile:
    provider: address
    epoch: uint32
    country: uint8
    zone: uint8
    tier: uint8
    gpu_model: uint8
    gpu_class: uint8
    vram_gb: uint16
    gpu_units: uint16
    compliance: uint256
    uptime_ppm: uint32
    reputation_ppm: uint32

struct BidLeaf:
    provider: address
    price_uusd: uint64
    terms_hash: bytes32
    salt: bytes32
    uptime_ppm: uint32
    reputation_ppm: uint32
    rtt_ms: uint16
    status: uint8
    score: uint64

struct Task:
    order_id: bytes32
    attempt: uint32
    policy_hash: bytes32
    snapshot_epoch: uint32
    snapshot_root: bytes32
    stake_version: uint32
    bid_root: bytes32
    bid_count: uint16
    first: uint16
    second: uint16
    third: uint16

NO_LEAF: constant(uint16) = 65_535  # no candidate
PRICE_END: constant(uint256) = 2**40
PPM: constant(uint256) = 10**6

POLICY_TYPEHASH: constant(bytes32) = keccak256(
    "Policy(uint256 countries,uint256 tiers,uint256 gpuModels,uint8 minGpuClass,uint16 minVramGb,uint16 gpuUnits,uint256 compliance,uint32 minUptimePpm,uint32 minReputationPpm,uint64 maxPriceUusd,uint32 latencyValue,bytes32 rttRow,uint8 paymentRule,uint32 commitMs,uint32 revealMs,uint32 startS,uint32 standinS,uint32 downS,uint32 reclaimS,uint32 emptyGraceS,uint32 durationS,address[] only,address[] ignore)"
)
PROFILE_TYPEHASH: constant(bytes32) = keccak256(
    "Profile(address provider,uint32 epoch,uint8 country,uint8 zone,uint8 tier,uint8 gpuModel,uint8 gpuClass,uint16 vramGb,uint16 gpuUnits,uint256 compliance,uint32 uptimePpm,uint32 reputationPpm)"
)
BID_TYPEHASH: constant(bytes32) = keccak256(
    "Bid(bytes32 orderId,uint32 attempt,address provider,uint64 priceUusd,bytes32 termsHash,bytes32 salt)"
)
COMMIT_TYPEHASH: constant(bytes32) = keccak256(
    "BidCommit(bytes32 orderId,uint32 attempt,address provider,bytes32 bidId)"
)
LEAF_TYPEHASH: constant(bytes32) = keccak256(
    "BidLeaf(address provider,uint64 priceUusd,bytes32 termsHash,bytes32 salt,uint32 uptimePpm,uint32 reputationPpm,uint16 rttMs,uint8 status,uint64 score)"
)
TASK_TYPEHASH: constant(bytes32) = keccak256(
    "Task(bytes32 orderId,uint32 attempt,bytes32 policyHash,uint32 snapshotEpoch,bytes32 snapshotRoot,uint32 stakeVersion,bytes32 bidRoot,uint16 bidCount,uint16 first,uint16 second,uint16 third)"
)
VOTE_TYPEHASH: constant(bytes32) = keccak256(
    "Vote(bytes32 orderId,uint32 attempt,uint32 round,bytes32 taskHash)"
)


# Hashes


@internal
@pure
def _addresses_hash(addresses: DynArray[address, 8]) -> bytes32:
    # An EIP-712 array is hashed as its bare elements: the ABI's offset and length are cut off.
    return keccak256(slice(abi_encode(addresses), 64, 32 * len(addresses)))


@internal
@pure
def _policy_hash(p: Policy) -> bytes32:
    return keccak256(
        abi_encode(
            POLICY_TYPEHASH, p.countries, p.tiers, p.gpu_models, p.min_gpu_class, p.min_vram_gb, p.gpu_units,
            p.compliance, p.min_uptime_ppm, p.min_reputation_ppm, p.max_price_uusd, p.latency_value, p.rtt_row,
            p.payment_rule, p.commit_ms, p.reveal_ms, p.start_s, p.standin_s, p.down_s, p.reclaim_s, p.empty_grace_s,
            p.duration_s, self._addresses_hash(p.only), self._addresses_hash(p.ignore),
        )
    )


@internal
@pure
def _profile_hash(profile: Profile) -> bytes32:
    return keccak256(abi_encode(PROFILE_TYPEHASH, profile))


@internal
@pure
def _leaf_hash(leaf: BidLeaf) -> bytes32:
    return keccak256(abi_encode(LEAF_TYPEHASH, leaf))


@internal
@pure
def _task_hash(task: Task) -> bytes32:
    return keccak256(abi_encode(TASK_TYPEHASH, task))


@internal
@pure
def _vote_hash(task: Task, round: uint32) -> bytes32:
    return keccak256(abi_encode(VOTE_TYPEHASH, task.order_id, task.attempt, round, self._task_hash(task)))


@internal
@pure
def _bid_id(order_id: bytes32, attempt: uint32, leaf: BidLeaf) -> bytes32:
    return keccak256(
        abi_encode(BID_TYPEHASH, order_id, attempt, leaf.provider, leaf.price_uusd, leaf.terms_hash, leaf.salt)
    )


@internal
@pure
def _commit_hash(order_id: bytes32, attempt: uint32, provider: address, bid_id: bytes32) -> bytes32:
    return keccak256(abi_encode(COMMIT_TYPEHASH, order_id, attempt, provider, bid_id))


# Eligibility and score


@internal
@pure
def _allows(mask: uint256, id: uint8) -> bool:
    return mask == 0 or (mask >> convert(id, uint256)) & 1 == 1


@internal
@pure
def _status(policy: Policy, profile: Profile, price_uusd: uint64) -> uint8:
    """0 if eligible, else the code of the first check that fails."""
    if price_uusd > policy.max_price_uusd:
        return 1
    if not self._allows(policy.countries, profile.country):
        return 2
    if not self._allows(policy.tiers, profile.tier):
        return 3
    if not self._allows(policy.gpu_models, profile.gpu_model):
        return 4
    if profile.gpu_class < policy.min_gpu_class:
        return 5
    if profile.vram_gb < policy.min_vram_gb:
        return 6
    if profile.gpu_units < policy.gpu_units:
        return 7
    if profile.compliance & policy.compliance != policy.compliance:
        return 8
    if profile.uptime_ppm < policy.min_uptime_ppm:
        return 9
    if profile.reputation_ppm < policy.min_reputation_ppm:
        return 10
    if len(policy.only) > 0 and profile.provider not in policy.only:
        return 11
    if profile.provider in policy.ignore:
        return 12
    return 0


@internal
@pure
def _p_ok(leaf: BidLeaf) -> uint256:
    return max(1, convert(leaf.uptime_ppm, uint256) * convert(leaf.reputation_ppm, uint256) // PPM)


@internal
@pure
def _score(policy: Policy, leaf: BidLeaf) -> uint256:
    cost: uint256 = convert(leaf.price_uusd, uint256) + convert(policy.latency_value, uint256) * convert(leaf.rtt_ms, uint256)
    return cost * PPM // self._p_ok(leaf)


@internal
@pure
def _price_in_range(leaf: BidLeaf) -> bool:
    return leaf.price_uusd >= 1 and convert(leaf.price_uusd, uint256) < PRICE_END


@internal
@pure
def _is_true_leaf(policy: Policy, profile: Profile, leaf: BidLeaf) -> bool:
    """True if every field of the leaf follows from policy, profile and price."""
    rtt_ms: uint256 = 2 * ((convert(policy.rtt_row, uint256) >> (8 * (31 - convert(profile.zone, uint256)))) & 255)
    status: uint8 = self._status(policy, profile, leaf.price_uusd)
    return (
        self._price_in_range(leaf)
        and leaf.uptime_ppm == profile.uptime_ppm
        and leaf.reputation_ppm == profile.reputation_ppm
        and convert(leaf.rtt_ms, uint256) == rtt_ms
        and leaf.status == status
        and convert(leaf.score, uint256) == (self._score(policy, leaf) if status == 0 else 0)
    )


# Order and pay


@internal
@pure
def _precedes(task: Task, a: BidLeaf, b: BidLeaf) -> bool:
    if a.score != b.score:
        return a.score < b.score
    seed: bytes32 = keccak256(concat(task.order_id, task.bid_root))
    tie_a: bytes32 = keccak256(concat(seed, convert(a.provider, bytes32)))
    tie_b: bytes32 = keccak256(concat(seed, convert(b.provider, bytes32)))
    return convert(tie_a, uint256) < convert(tie_b, uint256)


@internal
@pure
def _second_score_pay(policy: Policy, first: BidLeaf, second: BidLeaf) -> uint256:
    """The price at which the winner's score would equal the runner-up's. The product does not fit 64 bits."""
    lead: uint256 = convert(second.score, uint256) - convert(first.score, uint256)
    price: uint256 = convert(first.price_uusd, uint256) + lead * self._p_ok(first) // PPM
    return min(convert(policy.max_price_uusd, uint256), price)
