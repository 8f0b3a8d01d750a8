# pragma version 0.4.3
# pragma evm-version prague
"""
@title Who offers machines
@notice A provider is one node, by the address that registered: it owns the bond and is paid. Its node key, hot and
        replaceable, signs bids and lease actions, and serves this provider for ever, so that one machine does not bid
        twice. Figures here are claims; attestations are signed by auditors; neither holds an endpoint or money. A
        guardian may suspend a provider; it cannot touch what the provider owns.
"""

from contracts.interfaces import IStakeRegistry
from contracts.modules import guardians
from contracts.modules import typed
from contracts.modules import twins

initializes: guardians
initializes: twins
exports: (
    twins.nonces, twins.DOMAIN_SEPARATOR,
    guardians.guardian, guardians.guardian_next, guardians.propose_guardian, guardians.accept_guardian,
)

struct Claims:
    country: uint8
    zone: uint8
    tier: uint8
    gpu_model: uint8  # 0 for none
    vram_gb: uint16  # of each GPU; 0 if it is not known
    gpu_units: uint16  # whole GPUs that one lease can have; 0 for a machine that offers processors only
    price_hint_uusd: uint64  # per hour, all-in
    metadata_hash: bytes32

struct NodeKey:
    current: address
    since: uint256
    previous: address  # counts for orders opened up to `since`

struct Service:  # of a node key; it counts for orders opened after `since` and up to `until`
    provider: address
    since: uint256
    until: uint256

struct Attestation:
    detail: bytes32
    expires_at: uint256

event ProviderRegistered:
    provider: indexed(address)

event ClaimsChanged:
    provider: indexed(address)
    claims: Claims

event StatusChanged:
    provider: indexed(address)
    status: uint8
    reason: bytes32

event NodeKeyChanged:
    provider: indexed(address)
    node_key: indexed(address)

event AuditorChanged:
    auditor: indexed(address)
    allowed: bool

event Attested:
    provider: indexed(address)
    auditor: indexed(address)
    topic: uint8
    detail: bytes32
    expires_at: uint256

UNKNOWN: constant(uint8) = 0
REGISTERED: constant(uint8) = 1
ACTIVE: constant(uint8) = 2
MAINTENANCE: constant(uint8) = 3
SUSPENDED: constant(uint8) = 4
LEFT: constant(uint8) = 5
TOPICS: constant(uint8) = 3  # compliance, region, specs

REGISTER_TYPEHASH: constant(bytes32) = keccak256(
    "Register(address provider,uint8 country,uint8 zone,uint8 tier,uint8 gpuModel,uint16 vramGb,uint16 gpuUnits,uint64 priceHintUusd,bytes32 metadataHash,address nodeKey,uint256 nonce,uint256 deadline)"
)
CLAIMS_TYPEHASH: constant(bytes32) = keccak256(
    "SetClaims(address provider,uint8 country,uint8 zone,uint8 tier,uint8 gpuModel,uint16 vramGb,uint16 gpuUnits,uint64 priceHintUusd,bytes32 metadataHash,uint256 nonce,uint256 deadline)"
)
SET_STATUS_TYPEHASH: constant(bytes32) = keccak256(
    "SetStatus(address provider,uint8 status,uint256 nonce,uint256 deadline)"
)
SET_NODE_KEY_TYPEHASH: constant(bytes32) = keccak256(
    "SetNodeKey(address provider,address nodeKey,uint256 nonce,uint256 deadline)"
)
NODE_KEY_TYPEHASH: constant(bytes32) = keccak256("NodeKey(address provider,address nodeKey)")

ATTEMPT_S: public(immutable(uint256))

status_of: public(HashMap[address, uint8])
claims_of: public(HashMap[address, Claims])
node_key_of: public(HashMap[address, NodeKey])
service_of: public(HashMap[address, Service])  # node key -> whom it serves, for ever
auditors: public(HashMap[address, bool])
attestation_of: public(HashMap[address, HashMap[address, HashMap[uint8, Attestation]]])  # provider, auditor, topic


@deploy
def __init__(guardian: address, stakes: address):
    """
    @notice Set the guardian, and how long a node key must stay: a node key changes at most once per ATTEMPT_S.
    @param guardian The guardian.
    @param stakes The stake registry, which has the network's times.
    """
    guardians.__init__(guardian)
    assert stakes != empty(address), "ZERO_ADDRESS"
    ATTEMPT_S = staticcall IStakeRegistry(stakes).ATTEMPT_S()


# The provider's own acts


@external
def register(claims: Claims, node_key: address, node_key_signature: Bytes[65]):
    """
    @notice Register the caller as a provider, with its claims and its node key.
    @param claims What the provider says of its machines.
    @param node_key The key that signs bids and lease actions.
    @param node_key_signature The key's own EIP-712 signature that it serves this provider.
    """
    self._register(msg.sender, claims, node_key, node_key_signature)


@external
def register_with_signature(
    provider: address,
    claims: Claims,
    node_key: address,
    node_key_signature: Bytes[65],
    deadline: uint256,
    signature: Bytes[65],
):
    """
    @notice `register` as a meta-transaction: the provider signs it, a relayer sends it and pays the gas.
    @param provider The provider.
    @param claims What the provider says of its machines.
    @param node_key The key that signs bids and lease actions.
    @param node_key_signature The key's own EIP-712 signature that it serves this provider.
    @param deadline The last Unix second at which the signature is valid.
    @param signature The EIP-712 signature of the account that acts: 65 bytes r, s, v.
    """
    nonce: uint256 = twins._next_nonce(provider)
    content: bytes32 = keccak256(abi_encode(REGISTER_TYPEHASH, provider, claims, node_key, nonce, deadline))
    twins._require_signed(provider, content, deadline, signature)
    self._register(provider, claims, node_key, node_key_signature)


@external
def set_claims(claims: Claims):
    """
    @notice Change what the caller claims of its machines.
    @param claims What the provider says of its machines.
    """
    self._set_claims(msg.sender, claims)


@external
def set_claims_with_signature(provider: address, claims: Claims, deadline: uint256, signature: Bytes[65]):
    """
    @notice `set_claims` as a meta-transaction: the provider signs it, a relayer sends it and pays the gas.
    @param provider The provider.
    @param claims What the provider says of its machines.
    @param deadline The last Unix second at which the signature is valid.
    @param signature The EIP-712 signature of the account that acts: 65 bytes r, s, v.
    """
    nonce: uint256 = twins._next_nonce(provider)
    content: bytes32 = keccak256(abi_encode(CLAIMS_TYPEHASH, provider, claims, nonce, deadline))
    twins._require_signed(provider, content, deadline, signature)
    self._set_claims(provider, claims)


@external
def set_status(status: uint8):
    """
    @notice Change the caller's status: start to take leases, pause for maintenance, or leave.
    @param status 2 active, 3 maintenance, 5 left.
    """
    self._set_own_status(msg.sender, status)


@external
def set_status_with_signature(provider: address, status: uint8, deadline: uint256, signature: Bytes[65]):
    """
    @notice `set_status` as a meta-transaction: the provider signs it, a relayer sends it and pays the gas.
    @param provider The provider.
    @param status 2 active, 3 maintenance, 5 left.
    @param deadline The last Unix second at which the signature is valid.
    @param signature The EIP-712 signature of the account that acts: 65 bytes r, s, v.
    """
    nonce: uint256 = twins._next_nonce(provider)
    content: bytes32 = keccak256(abi_encode(SET_STATUS_TYPEHASH, provider, status, nonce, deadline))
    twins._require_signed(provider, content, deadline, signature)
    self._set_own_status(provider, status)


@external
def set_node_key(node_key: address, node_key_signature: Bytes[65]):
    """
    @notice Replace the caller's node key.
    @dev The old key still counts for orders that were opened before.
    @param node_key The key that signs bids and lease actions.
    @param node_key_signature The key's own EIP-712 signature that it serves this provider.
    """
    self._set_node_key(msg.sender, node_key, node_key_signature)


@external
def set_node_key_with_signature(
    provider: address, node_key: address, node_key_signature: Bytes[65], deadline: uint256, signature: Bytes[65]
):
    """
    @notice `set_node_key` as a meta-transaction: the provider signs it, a relayer sends it and pays the gas.
    @param provider The provider.
    @param node_key The key that signs bids and lease actions.
    @param node_key_signature The key's own EIP-712 signature that it serves this provider.
    @param deadline The last Unix second at which the signature is valid.
    @param signature The EIP-712 signature of the account that acts: 65 bytes r, s, v.
    """
    nonce: uint256 = twins._next_nonce(provider)
    content: bytes32 = keccak256(abi_encode(SET_NODE_KEY_TYPEHASH, provider, node_key, nonce, deadline))
    twins._require_signed(provider, content, deadline, signature)
    self._set_node_key(provider, node_key, node_key_signature)


# Auditors and the guardian


@external
def set_auditor(auditor: address, allowed: bool):
    """
    @notice Allow or forbid an auditor. Only the guardian may call it.
    @param auditor The auditor.
    @param allowed Whether its attestations count from now on.
    """
    guardians._require_guardian()
    self.auditors[auditor] = allowed
    log AuditorChanged(auditor=auditor, allowed=allowed)


@external
def attest(provider: address, topic: uint8, detail: bytes32, expires_at: uint256):
    """
    @notice State that something about a provider is true, or take it back. Only an auditor may call it.
    @param provider The provider.
    @param topic 0 compliance, 1 region, 2 specifications.
    @param detail Hash of what the auditor signed; zero takes the attestation back.
    @param expires_at The Unix second after which it no longer counts.
    """
    assert self.auditors[msg.sender], "NOT_AUDITOR"
    assert self.status_of[provider] != UNKNOWN, "NOT_REGISTERED"
    assert topic < TOPICS, "UNKNOWN_TOPIC"
    self.attestation_of[provider][msg.sender][topic] = Attestation(detail=detail, expires_at=expires_at)
    log Attested(provider=provider, auditor=msg.sender, topic=topic, detail=detail, expires_at=expires_at)


@external
def suspend(provider: address, reason: bytes32):
    """
    @notice Keep a provider from new leases. Only the guardian may call it.
    @param provider The provider.
    @param reason Hash of the reason.
    """
    guardians._require_guardian()
    assert self.status_of[provider] in [REGISTERED, ACTIVE, MAINTENANCE], "WRONG_STATUS"
    self._set_status(provider, SUSPENDED, reason)


@external
def reinstate(provider: address):
    """
    @notice End a suspension. Only the guardian may call it; the provider then activates itself.
    @param provider The provider.
    """
    guardians._require_guardian()
    assert self.status_of[provider] == SUSPENDED, "WRONG_STATUS"
    self._set_status(provider, REGISTERED, empty(bytes32))


# Reads


@external
@view
def node_key_at(provider: address, time: uint256) -> address:
    """
    @notice The node key that counts for an order opened at a moment.
    @dev A key counts from the second after its change.
    @param provider The provider.
    @param time Unix seconds.
    @return The key; the empty address if there was none.
    """
    key: NodeKey = self.node_key_of[provider]
    return key.current if key.since < time else key.previous


@external
@view
def was_node_key(provider: address, node_key: address, time: uint256) -> bool:
    """
    @notice Whether a key counted for an order opened at a moment, however often the provider has changed it since.
    @param provider The provider.
    @param node_key The key.
    @param time Unix seconds.
    @return True if it was that provider's node key then.
    """
    service: Service = self.service_of[node_key]
    return service.provider == provider and service.since < time and time <= service.until


@internal
def _register(provider: address, claims: Claims, node_key: address, node_key_signature: Bytes[65]):
    assert self.status_of[provider] in [UNKNOWN, LEFT], "ALREADY_REGISTERED"
    self._set_status(provider, REGISTERED, empty(bytes32))
    log ProviderRegistered(provider=provider)
    self._set_claims(provider, claims)
    if node_key != self.node_key_of[provider].current:
        self._set_node_key(provider, node_key, node_key_signature)


@internal
def _set_claims(provider: address, claims: Claims):
    assert self.status_of[provider] not in [UNKNOWN, LEFT], "NOT_REGISTERED"
    assert claims.zone < 32 and (claims.gpu_units == 0) == (claims.gpu_model == 0), "BAD_CLAIMS"
    assert claims.gpu_units > 0 or claims.vram_gb == 0, "BAD_CLAIMS"
    self.claims_of[provider] = claims
    log ClaimsChanged(provider=provider, claims=claims)


@internal
def _set_own_status(provider: address, status: uint8):
    now: uint8 = self.status_of[provider]
    if status == LEFT:
        assert now not in [UNKNOWN, SUSPENDED, LEFT], "WRONG_STATUS"
    elif status == ACTIVE:
        assert now in [REGISTERED, MAINTENANCE], "WRONG_STATUS"
    else:
        assert status == MAINTENANCE and now == ACTIVE, "WRONG_STATUS"
    self._set_status(provider, status, empty(bytes32))


@internal
def _set_status(provider: address, status: uint8, reason: bytes32):
    self.status_of[provider] = status
    log StatusChanged(provider=provider, status=status, reason=reason)


@internal
def _set_node_key(provider: address, node_key: address, node_key_signature: Bytes[65]):
    """The key itself signs that it serves this provider, so nobody claims a stranger's node. It serves once."""
    assert self.status_of[provider] not in [UNKNOWN, LEFT], "NOT_REGISTERED"
    assert self.service_of[node_key].provider == empty(address), "KEY_TAKEN"
    key: NodeKey = self.node_key_of[provider]
    assert key.since == 0 or block.timestamp > key.since + ATTEMPT_S, "CHANGED_TOO_RECENTLY"
    content: bytes32 = keccak256(abi_encode(NODE_KEY_TYPEHASH, provider, node_key))
    assert typed._recover(typed._digest_of(self, content), node_key_signature) == node_key, "NOT_SIGNED_BY_NODE_KEY"
    self.node_key_of[provider] = NodeKey(current=node_key, since=block.timestamp, previous=key.current)
    if key.current != empty(address):
        self.service_of[key.current].until = block.timestamp
    self.service_of[node_key] = Service(provider=provider, since=block.timestamp, until=max_value(uint256))
    log NodeKeyChanged(provider=provider, node_key=node_key)
