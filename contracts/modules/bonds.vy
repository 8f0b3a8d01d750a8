# pragma version 0.4.3
"""
@title Provider bonds
@notice bond = free + locked + unbonding. A part is locked while a lease is placed; free and unbonding parts answer for
        bids alike, so nobody leaves a bid by unbonding. Moves no money: the registry that imports it does.
"""

struct Bond:
    free: uint256
    locked: uint256
    unbonding: uint256
    ready_at: uint256

event BondChanged:
    provider: indexed(address)
    free: uint256
    locked: uint256
    unbonding: uint256

bond_of: public(HashMap[address, Bond])


@external
@view
def free_bond(provider: address) -> uint256:
    """
    @notice The part of a provider's bond that is neither locked nor unbonding.
    @param provider The provider.
    @return The amount in µUSD.
    """
    return self.bond_of[provider].free


@internal
def _add(provider: address, amount: uint256):
    self.bond_of[provider].free += amount
    self._tell(provider)


@internal
def _lock(provider: address, wanted: uint256, least: uint256) -> uint256:
    """As much of `wanted` as there is, free money first; nothing if that is less than `least`."""
    bond: Bond = self.bond_of[provider]
    amount: uint256 = min(wanted, bond.free + bond.unbonding)
    if amount == 0 or amount < least:
        return 0
    from_free: uint256 = min(amount, bond.free)
    self.bond_of[provider].free = bond.free - from_free
    self.bond_of[provider].unbonding = bond.unbonding - (amount - from_free)
    self.bond_of[provider].locked = bond.locked + amount
    self._tell(provider)
    return amount


@internal
def _release(provider: address, amount: uint256):
    assert self.bond_of[provider].locked >= amount, "NOT_LOCKED"
    self.bond_of[provider].locked -= amount
    self.bond_of[provider].free += amount
    self._tell(provider)


@internal
def _take_locked(provider: address, amount: uint256):
    assert self.bond_of[provider].locked >= amount, "NOT_LOCKED"
    self.bond_of[provider].locked -= amount
    self._tell(provider)


@internal
def _take_unlocked(provider: address, amount: uint256) -> uint256:
    """As much of `amount` as is not locked; what is on its way out goes first."""
    bond: Bond = self.bond_of[provider]
    taken: uint256 = min(amount, bond.free + bond.unbonding)
    from_unbonding: uint256 = min(taken, bond.unbonding)
    self.bond_of[provider].unbonding = bond.unbonding - from_unbonding
    self.bond_of[provider].free = bond.free - (taken - from_unbonding)
    self._tell(provider)
    return taken


@internal
def _start_unbonding(provider: address, amount: uint256, ready_at: uint256):
    assert amount > 0, "ZERO_AMOUNT"
    assert self.bond_of[provider].free >= amount, "BOND_TOO_SMALL"
    self.bond_of[provider].free -= amount
    self.bond_of[provider].unbonding += amount
    self.bond_of[provider].ready_at = ready_at
    self._tell(provider)


@internal
def _finish_unbonding(provider: address) -> uint256:
    bond: Bond = self.bond_of[provider]
    assert bond.unbonding > 0, "NOTHING_UNBONDING"
    assert block.timestamp >= bond.ready_at, "TOO_EARLY"
    self.bond_of[provider].unbonding = 0
    self._tell(provider)
    return bond.unbonding


@internal
def _tell(provider: address):
    bond: Bond = self.bond_of[provider]
    log BondChanged(provider=provider, free=bond.free, locked=bond.locked, unbonding=bond.unbonding)
