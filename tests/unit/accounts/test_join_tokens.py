from __future__ import annotations

import pytest

from sparewatt.accounts.join_tokens import JOIN_TOKEN_PREFIX, JoinTokens
from sparewatt.accounts.keys import hash_secret
from sparewatt.core.errors import JoinRefused
from sparewatt.core.ids import AccountId, KeyId, NodeId
from sparewatt.core.rng import seeded
from sparewatt.store.database import JoinTokenVerdict, NodeOwner
from tests.unit.gateway.small_gateway import BORN, ListDatabase, NoPeople
from tests.unit.inference.nodes import node_id

TOKEN = "join-sw-abc"
OWNER = AccountId("acc_owner")


class TokenDatabase(ListDatabase):
    def __init__(
        self,
        *,
        registered: bool = False,
        closed: bool = False,
        verdict: JoinTokenVerdict = "accepted",
        lease_order: str | None = None,
    ) -> None:
        super().__init__()
        self.closed = closed
        self.registered = registered
        self.verdict = verdict
        self.lease_order = lease_order
        self.exchanged: list[tuple[bytes, NodeId]] = []

    async def find_node_owner(self, node_id: NodeId) -> NodeOwner | None:
        return NodeOwner(OWNER, self.closed, self.lease_order) if self.registered else None

    async def exchange_join_token(self, hashed: bytes, node_id: NodeId) -> JoinTokenVerdict:
        self.exchanged.append((hashed, node_id))
        self.registered = self.verdict == "accepted"
        return self.verdict


def tokens_over(database: TokenDatabase) -> JoinTokens:
    return JoinTokens(database, rng=seeded(1))


async def test_a_token_is_made_with_its_expiry() -> None:
    database = TokenDatabase()
    token, expires_at = await tokens_over(database).create(OWNER, created_by=KeyId("key_a"), life_s=60)
    assert token.startswith(JOIN_TOKEN_PREFIX)
    assert isinstance(database.accounts, NoPeople)
    assert database.accounts.owners == [OWNER]
    assert (expires_at - BORN).total_seconds() == 60


async def test_a_registered_node_uses_up_no_token() -> None:
    database = TokenDatabase(registered=True)
    assert await tokens_over(database).admit(node_id(1), TOKEN) == OWNER
    assert database.exchanged == []


async def test_a_node_of_a_closed_account_is_refused() -> None:
    with pytest.raises(JoinRefused) as caught:
        await tokens_over(TokenDatabase(registered=True, closed=True)).admit(node_id(1), TOKEN)
    assert caught.value.reason == "closed"


async def test_a_new_node_is_let_in_by_a_good_token_known_only_by_its_hash() -> None:
    database = TokenDatabase()
    await tokens_over(database).admit(node_id(1), TOKEN)
    assert database.exchanged == [(hash_secret(TOKEN), node_id(1))]


async def test_a_new_node_without_a_token_is_refused() -> None:
    with pytest.raises(JoinRefused) as caught:
        await tokens_over(TokenDatabase()).admit(node_id(1), None)
    assert caught.value.reason == "no_token"


@pytest.mark.parametrize("verdict", ["unknown", "used", "expired", "closed"])
async def test_a_bad_token_is_refused_with_its_reason(verdict: JoinTokenVerdict) -> None:
    with pytest.raises(JoinRefused) as caught:
        await tokens_over(TokenDatabase(verdict=verdict)).admit(node_id(1), TOKEN)
    assert caught.value.reason == f"token_{verdict}"


@pytest.mark.parametrize("registered", [True, False])
async def test_a_node_of_a_lease_that_is_over_is_refused_also_with_its_key_or_a_token_left_over(
    registered: bool,  # noqa: FBT001 (a parameter of the test)
) -> None:
    database = TokenDatabase(registered=registered, lease_order="0x1")
    tokens = JoinTokens(database, rng=seeded(1), is_lease_over=lambda order: order == "0x1")
    with pytest.raises(JoinRefused) as caught:
        await tokens.admit(node_id(1), TOKEN)
    assert caught.value.reason == "lease_over"
    going_on = JoinTokens(TokenDatabase(registered=registered, lease_order="0x2"), rng=seeded(1))
    assert await going_on.admit(node_id(1), TOKEN) == OWNER
