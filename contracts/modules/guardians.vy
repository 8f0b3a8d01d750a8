# pragma version 0.4.3
"""
@title A guardian, who may hand over in two steps
@notice Owns nothing and moves nothing.
"""

event GuardianProposed:
    guardian: indexed(address)

event GuardianChanged:
    guardian: indexed(address)

guardian: public(address)
guardian_next: public(address)


@deploy
def __init__(guardian: address):
    """
    @notice Set the first guardian.
    @param guardian The guardian.
    """
    assert guardian != empty(address), "ZERO_ADDRESS"
    self.guardian = guardian


@external
def propose_guardian(guardian: address):
    """
    @notice Propose the next guardian, who then has to accept. Only the guardian may call it.
    @param guardian The account proposed.
    """
    self._require_guardian()
    self.guardian_next = guardian
    log GuardianProposed(guardian=guardian)


@external
def accept_guardian():
    """
    @notice Become the guardian. Only the account proposed may call it.
    """
    assert msg.sender == self.guardian_next, "NOT_GUARDIAN"
    self.guardian = msg.sender
    self.guardian_next = empty(address)
    log GuardianChanged(guardian=msg.sender)


@internal
@view
def _require_guardian():
    assert msg.sender == self.guardian, "NOT_GUARDIAN"
