# pragma version 0.4.3
"""
@title A guardian, who names auditors and may hand over in two steps
@notice Owns nothing and moves nothing.
"""

event AuditorChanged:
    auditor: indexed(address)
    allowed: bool

event GuardianProposed:
    guardian: indexed(address)

event GuardianChanged:
    guardian: indexed(address)

guardian: public(address)
guardian_next: public(address)
auditors: public(HashMap[address, bool])


@deploy
def __init__(guardian: address):
    """
    @notice Set the first guardian.
    @param guardian The guardian.
    """
    assert guardian != empty(address), "ZERO_ADDRESS"
    self.guardian = guardian


@external
def set_auditor(auditor: address, allowed: bool):
    """
    @notice Allow or forbid an auditor. Only the guardian may call it.
    @param auditor The auditor.
    @param allowed Whether its attestations count from now on.
    """
    self._require_guardian()
    self.auditors[auditor] = allowed
    log AuditorChanged(auditor=auditor, allowed=allowed)


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
