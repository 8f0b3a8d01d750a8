"""/v1/keys: create, list, change and revoke API keys. An account reaches its own keys, an operator all of them."""

from __future__ import annotations

import msgspec
from aiohttp import web

from sparewatt.accounts.keys import KeyService, terms_of
from sparewatt.api.accounts.descriptions import describe_key
from sparewatt.api.accounts.key_changes import changed_terms
from sparewatt.api.endpoint import delete, get, patch, post
from sparewatt.core.clock import Clock
from sparewatt.edge.auth import Authenticator
from sparewatt.edge.bodies import read_json
from sparewatt.edge.middleware import context_of
from sparewatt.protocol.api.accounts import ApiKey, ApiKeyList, CreatedKey, KeyChange, NewKey, RevokedKey
from sparewatt.store.database import KeyRow, KeyTerms


class KeyEndpoints:
    def __init__(self, *, auth: Authenticator, keys: KeyService, clock: Clock) -> None:
        self._auth = auth
        self._keys = keys
        self._clock = clock

    @post("/v1/keys", body=NewKey, status=201)
    async def create_key(self, request: web.Request) -> CreatedKey:
        """Create an API key. The reply is the only one that holds the key itself."""
        principal = await self._auth.authenticate(context_of(request), "admin")
        body = await read_json(request, NewKey)
        terms = changed_terms(KeyTerms(name="unnamed"), body, unix_s=self._clock.unix_s())
        row, secret = await self._keys.create(principal.account_id, terms=terms, scopes=body.scopes)
        return CreatedKey(**msgspec.structs.asdict(describe_key(row)), key=secret)

    @get("/v1/keys")
    async def list_keys(self, request: web.Request) -> ApiKeyList:
        """List the API keys, revoked ones included."""
        principal = await self._auth.authenticate(context_of(request), "admin")
        return ApiKeyList(data=[describe_key(row) for row in await self._keys.list(principal.account_filter)])

    @patch("/v1/keys/{key_id}", body=KeyChange)
    async def change_key(self, request: web.Request) -> ApiKey:
        """Change a key's name, policy, budget, expiry or rate limits."""
        principal = await self._auth.authenticate(context_of(request), "admin")
        body = await read_json(request, KeyChange)
        unix_s = self._clock.unix_s()

        def change(row: KeyRow) -> KeyTerms:
            return changed_terms(terms_of(row), body, unix_s=unix_s)

        row = await self._keys.change_terms(
            request.match_info["key_id"], account_id=principal.account_filter, change=change
        )
        return describe_key(row)

    @delete("/v1/keys/{key_id}")
    async def revoke_key(self, request: web.Request) -> RevokedKey:
        """Revoke a key for good."""
        principal = await self._auth.authenticate(context_of(request), "admin")
        row = await self._keys.revoke(request.match_info["key_id"], account_id=principal.account_filter)
        return RevokedKey(**msgspec.structs.asdict(describe_key(row)))
