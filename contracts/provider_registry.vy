# pragma version 0.4.3
# pragma evm-version prague
"""
@title Who offers machines
@notice A provider is the address that registered: it owns the bond and is paid. Its node key, hot and replaceable, signs
        bids and lease actions. Figures here are claims; attestations are what auditors stand for; neither holds an endpoint
        or money. A guardian may suspend a provider; what the provider owns is out of its reach.
"""

from contracts.modules import guardians
from contracts.modules import typed
from contracts.modules import twins

initializes: guardians
initializes: twins
exports: (
    twins.nonces, twins.DOMAIN_SEPARATOR,
    guardians.guardian, guardians.guardian_next, guardians.auditors,
    guardians.set_auditor, guardians.propose_guardian, guardians.accept_guardian,
)

struct Claims:
    country: uint8
    zone: uint8
    tier: uint8
    gpu_model: uint8
    gpu_units: uint16
    price_hint_uusd: uint64  # per hour, all-in
    metadata_hash: bytes32

struct NodeKey:
    current: address
    since: uint256
    previous: address  # counts for orders opened up to `since`

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
    "Register(address provider,uint8 country,uint8 zone,uint8 tier,uint8 gpuModel,uint16 gpuUnits,uint64 priceHintUusd,bytes32 metadataHash,address nodeKey,uint256 nonce,uint256 deadline)"
)
CLAIMS_TYPEHASH: constant(bytes32) = keccak256(
    "SetClaims(address provider,uint8 country,uint8 zone,uint8 tier,uint8 gpuModel,uint16 gpuUnits,uint64 priceHintUusd,bytes32 metadataHash,uint256 nonce,uint256 deadline)"
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
attestation_of: public(HashMap[address, HashMap[address, HashMap[uint8, Attestation]]])  # provider, auditor, topic


@deploy
def __init__(guardian: address, attempt_s: uint256):
    guardians.__init__(guardian)
    ATTEMPT_S = attempt_s


# The provider's own acts


@external
def register(claims: Claims, node_key: address, node_key_signature: Bytes[65]):
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
    nonce: uint256 = twins._next_nonce(provider)
    content: bytes32 = keccak256(abi_encode(REGISTER_TYPEHASH, provider, claims, node_key, nonce, deadline))
    twins._require_signed(provider, content, deadline, signature)
    self._register(provider, claims, node_key, node_key_signature)


@external
def set_claims(claims: Claims):
    self._set_claims(msg.sender, claims)


@external
def set_claims_with_signature(provider: address, claims: Claims, deadline: uint256, signature: Bytes[65]):
    nonce: uint256 = twins._next_nonce(provider)
    content: bytes32 = keccak256(abi_encode(CLAIMS_TYPEHASH, provider, claims, nonce, deadline))
    twins._require_signed(provider, content, deadline, signature)
    self._set_claims(provider, claims)


@external
def set_status(status: uint8):
    self._set_own_status(msg.sender, status)


@external
def set_status_with_signature(provider: address, status: uint8, deadline: uint256, signature: Bytes[65]):
    nonce: uint256 = twins._next_nonce(provider)
    content: bytes32 = keccak256(abi_encode(SET_STATUS_TYPEHASH, provider, status, nonce, deadline))
    twins._require_signed(provider, content, deadline, signature)
    self._set_own_status(provider, status)


@external
def set_node_key(node_key: address, node_key_signature: Bytes[65]):
    self._set_node_key(msg.sender, node_key, node_key_signature)


@external
def set_node_key_with_signature(
    provider: address, node_key: address, node_key_signature: Bytes[65], deadline: uint256, signature: Bytes[65]
):
    nonce: uint256 = twins._next_nonce(provider)
    content: bytes32 = keccak256(abi_encode(SET_NODE_KEY_TYPEHASH, provider, node_key, nonce, deadline))
    twins._require_signed(provider, content, deadline, signature)
    self._set_node_key(provider, node_key, node_key_signature)


# Auditors and the guardian


@external
def attest(provider: address, topic: uint8, detail: bytes32, expires_at: uint256):
    """`detail` is the hash of what the auditor signed for, or zero to take it back."""
    assert guardians.auditors[msg.sender], "NOT_AUDITOR"
    assert self.status_of[provider] != UNKNOWN, "NOT_REGISTERED"
    assert topic < TOPICS, "UNKNOWN_TOPIC"
    self.attestation_of[provider][msg.sender][topic] = Attestation(detail=detail, expires_at=expires_at)
    log Attested(provider=provider, auditor=msg.sender, topic=topic, detail=detail, expires_at=expires_at)


@external
def suspend(provider: address, reason: bytes32):
    guardians._require_guardian()
    assert self.status_of[provider] in [REGISTERED, ACTIVE, MAINTENANCE], "WRONG_STATUS"
    self._set_status(provider, SUSPENDED, reason)


@external
def reinstate(provider: address):
    guardians._require_guardian()
    assert self.status_of[provider] == SUSPENDED, "WRONG_STATUS"
    self._set_status(provider, REGISTERED, empty(bytes32))


# Reads


@external
@view
def is_active(provider: address) -> bool:
    return self.status_of[provider] == ACTIVE


@external
@view
def node_key_at(provider: address, time: uint256) -> address:
    """The key that counts for an order opened at `time`: a key counts from the second after its change."""
    key: NodeKey = self.node_key_of[provider]
    return key.current if key.since < time else key.previous


@internal
def _register(provider: address, claims: Claims, node_key: address, node_key_signature: Bytes[65]):
    assert self.status_of[provider] in [UNKNOWN, LEFT], "ALREADY_REGISTERED"
    self._set_status(provider, REGISTERED, empty(bytes32))
    log ProviderRegistered(provider=provider)
    self._set_claims(provider, claims)
    self._set_node_key(provider, node_key, node_key_signature)


@internal
def _set_claims(provider: address, claims: Claims):
    assert self.status_of[provider] not in [UNKNOWN, LEFT], "NOT_REGISTERED"
    assert claims.gpu_units > 0 and claims.zone < 32, "BAD_CLAIMS"
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
    """The key itself signs that it serves this provider, so nobody claims a stranger's node."""
    assert self.status_of[provider] not in [UNKNOWN, LEFT], "NOT_REGISTERED"
    key: NodeKey = self.node_key_of[provider]
    assert key.since == 0 or block.timestamp > key.since + ATTEMPT_S, "CHANGED_TOO_RECENTLY"
    content: bytes32 = keccak256(abi_encode(NODE_KEY_TYPEHASH, provider, node_key))
    assert typed._recover(typed._digest_of(self, content), node_key_signature) == node_key, "NOT_SIGNED_BY_NODE_KEY"
    self.node_key_of[provider] = NodeKey(current=node_key, since=block.timestamp, previous=key.current)
    log NodeKeyChanged(provider=provider, node_key=node_key)
