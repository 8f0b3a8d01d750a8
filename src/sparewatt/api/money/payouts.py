"""/v1/payouts: payout batches for the settlement contract. Batches are public, so that anybody can check a root."""

from __future__ import annotations

import re

from aiohttp import web

from sparewatt.accounts.public_rate_limits import PublicRateLimiter
from sparewatt.api.endpoint import Reply, get, post
from sparewatt.api.money.pages import read_page
from sparewatt.api.money.payout_rows import (
    batch_leaves_of,
    batch_of,
    claim_list_of,
    payout_of,
    proof_of,
)
from sparewatt.api.money.selection import AccountFinder, select_account
from sparewatt.core.clock import Clock
from sparewatt.core.errors import ChainUnavailable, InvalidField, NotFound
from sparewatt.edge.auth import Authenticator
from sparewatt.edge.middleware import context_of
from sparewatt.ledger.deposit_adapters import ChainPaymentAdapter
from sparewatt.ledger.payouts import PayoutService
from sparewatt.protocol.api.payouts import (
    PayoutBatchCreation,
    PayoutBatchLeaves,
    PayoutBatchList,
    PayoutClaimList,
    PayoutList,
    PayoutProof,
)
from sparewatt.store.payouts import PayoutBatchRow, PayoutStore

_EPOCH = re.compile(r"[1-9]\d{0,17}")
_ADDRESS = re.compile(r"0x[0-9a-f]{40}")


class PayoutEndpoints:
    def __init__(
        self,
        *,
        auth: Authenticator,
        accounts: AccountFinder,
        payouts: PayoutStore,
        settlement: PayoutService,
        on_chain: ChainPaymentAdapter | None,
        published: PublicRateLimiter,
        clock: Clock,
    ) -> None:
        """`on_chain`: None where the network has no chain. `published`: the rate limit of what needs no key."""
        self._auth = auth
        self._accounts = accounts
        self._payouts = payouts
        self._settlement = settlement
        self._on_chain = on_chain
        self._published = published
        self._clock = clock

    @get("/v1/payouts", query=("limit", "after", "account"))
    async def list_payouts(self, request: web.Request) -> PayoutList:
        """List the payouts of your account, newest first; operators may name another account."""
        principal = await self._auth.authenticate(context_of(request), "node")
        page = read_page(request, now_unix_s=self._clock.unix_s())
        account = await select_account(request, principal, self._accounts)
        rows = await self._payouts.list_payouts(account, before=_epoch_or_none(page.after), limit=page.limit)
        following = str(rows[-1].epoch) if len(rows) == page.limit else None
        return PayoutList(data=[payout_of(row) for row in rows], next=following)

    @post("/v1/payouts/claim", query=("account",))
    async def claim(self, request: web.Request) -> PayoutClaimList:
        """Claim what an account earned, as far as it is on the chain. It goes to the account's own address."""
        principal = await self._auth.authenticate(context_of(request), "node")
        account = await select_account(request, principal, self._accounts)
        if self._on_chain is None:
            raise ChainUnavailable("This network has no chain: what was earned stays in its books.")
        claims = await self._on_chain.claim(account)
        waiting_micro, _, claimed_micro = await self._payouts.payout_totals(account)
        return claim_list_of(account, claims, claimed_micro=claimed_micro, waiting_micro=waiting_micro)

    @get("/v1/payouts/batches", query=("limit", "after"), is_public=True)
    async def list_batches(self, request: web.Request) -> PayoutBatchList:
        """List the payout batches and their roots, newest first."""
        self._limit_address(request)
        page = read_page(request, now_unix_s=self._clock.unix_s())
        rows = await self._payouts.batches(before=_epoch_or_none(page.after), limit=page.limit)
        following = str(rows[-1].epoch) if len(rows) == page.limit else None
        return PayoutBatchList(data=[batch_of(row) for row in rows], next=following)

    @post("/v1/payouts/batches", status=201, other_statuses=(200,))
    async def make_batch(self, request: web.Request) -> Reply[PayoutBatchCreation]:
        """Make the next payout batch now, instead of at its time. Operators only."""
        await self._auth.authenticate_operator(context_of(request))
        row = await self._settlement.make_batch()
        creation = PayoutBatchCreation(made=row is not None, batch=batch_of(row) if row else None)
        return Reply(creation, status=201 if row else 200)

    @get("/v1/payouts/batches/{epoch}", query=("limit", "after"), is_public=True)
    async def show_batch(self, request: web.Request) -> PayoutBatchLeaves:
        """Show one payout batch, with a page of its leaves in the order of the tree."""
        self._limit_address(request)
        batch = await self._find_batch(request)
        page = read_page(request, now_unix_s=self._clock.unix_s())
        leaves = await self._payouts.leaves_at(batch.epoch, after=page.after, limit=page.limit)
        following = leaves[-1].address if len(leaves) == page.limit else None
        return batch_leaves_of(batch, leaves, following=following)

    @get("/v1/payouts/batches/{epoch}/proof", query=("address",))
    async def show_proof(self, request: web.Request) -> PayoutProof:
        """Show the Merkle proof by which the settlement contract pays an address; by default your account's."""
        principal = await self._auth.authenticate(context_of(request), "node")
        batch = await self._find_batch(request)
        address = request.query.get("address") or (await self._accounts.get(principal.account_id)).chain_address or ""
        proof = await self._settlement.proof(batch.epoch, address) if _ADDRESS.fullmatch(address) else None
        if proof is None:
            raise NotFound(
                f"{address[:60]!r} has nothing in batch {batch.epoch}. 'sparewatt payouts list' shows yours."
            )
        return proof_of(batch, proof)

    def _limit_address(self, request: web.Request) -> None:
        """These routes need no key, so requests are counted by the client's address. Raises RateLimited."""
        self._published.admit(address=context_of(request).address)

    async def _find_batch(self, request: web.Request) -> PayoutBatchRow:
        epoch = request.match_info["epoch"]
        row = await self._payouts.find_batch(int(epoch)) if _EPOCH.fullmatch(epoch) else None
        if row is None:
            raise NotFound(f"There is no payout batch {epoch[:40]!r}. 'sparewatt payouts batches' shows them.")
        return row


def _epoch_or_none(text: str) -> int | None:
    if not text:
        return None
    if not _EPOCH.fullmatch(text):
        raise InvalidField("'after' is the number of a batch.", param="after")
    return int(text)
