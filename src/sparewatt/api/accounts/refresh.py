"""How a change of an account takes effect on its keys and sessions."""

from __future__ import annotations

from sparewatt.accounts.keys import KeyService
from sparewatt.accounts.sessions import Sessions
from sparewatt.core.ids import AccountId


async def refresh_account(account_id: AccountId, *, sessions: Sessions, keys: KeyService) -> None:
    """Drop cached sessions and reload keys: in this gateway at once, in other gateways within a second or two."""
    sessions.invalidate(account_id)
    await keys.on_account_changed()
