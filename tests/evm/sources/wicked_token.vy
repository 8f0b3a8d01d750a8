# pragma version 0.4.3
"""
@title A token that takes fees, refuses receivers, calls back in the middle of a transfer, and burns gas
@notice For tests only. Each vice is switched on by itself.
"""

balanceOf: public(HashMap[address, uint256])
allowance: public(HashMap[address, HashMap[address, uint256]])
fee_bps: public(uint256)
blocked: public(HashMap[address, bool])
target: public(address)
payload: public(Bytes[4096])
tries: public(uint256)
successes: public(uint256)
waste: public(uint256)
denying: public(bool)


@external
def faucet(receiver: address, amount: uint256):
    self.balanceOf[receiver] += amount


@external
def set_fee(bps: uint256):
    self.fee_bps = bps


@external
def set_blocked(account: address, blocked: bool):
    self.blocked[account] = blocked


@external
def arm(target: address, payload: Bytes[4096]):
    self.target = target
    self.payload = payload
    self.tries = 0
    self.successes = 0


@external
def set_denying(denying: bool):
    self.denying = denying


@external
def set_waste(rounds: uint256):
    self.waste = rounds


@external
def approve(spender: address, amount: uint256) -> bool:
    self.allowance[msg.sender][spender] = amount
    return True


@external
def approve_as_token(spender: address, amount: uint256):
    """The token itself holds and spends tokens when it calls back."""
    self.allowance[self][spender] = amount


@external
def transfer(receiver: address, amount: uint256) -> bool:
    if self.denying:
        return False
    self._move(msg.sender, receiver, amount)
    return True


@external
def transferFrom(owner: address, receiver: address, amount: uint256) -> bool:
    if self.denying:
        return False
    self.allowance[owner][msg.sender] -= amount
    self._move(owner, receiver, amount)
    return True


@internal
def _move(sender: address, receiver: address, amount: uint256):
    assert not self.blocked[receiver], "BLOCKED"
    for i: uint256 in range(self.waste, bound=1_000_000):
        if keccak256(convert(i, bytes32)) == empty(bytes32):
            break
    target: address = self.target
    if target != empty(address):
        self.target = empty(address)  # once, or it would call itself for ever
        self.tries += 1
        if raw_call(target, self.payload, revert_on_failure=False):
            self.successes += 1
    self.balanceOf[sender] -= amount
    self.balanceOf[receiver] += amount - amount * self.fee_bps // 10_000
