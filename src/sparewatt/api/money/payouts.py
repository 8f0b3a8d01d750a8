"""/v1/payouts: payout batches for the settlement contract. Batches are public, so that every owner can check a root."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from aiohttp import web

from sparewatt.accounts.principal import Principal
from sparewatt.accounts.public_rate_limits import PublicRateLimiter
from sparewatt.api.endpoint import Reply, endpoint
from sparewatt.api.money.statements import AccountFinder, read_page, select_account
from sparewatt.api.query import choice
from sparewatt.core.clock import Clock
from sparewatt.core.errors import InvalidField, NoChain, NotFound
from sparewatt.core.money import format_usd
from sparewatt.edge.bodies import read_json
from sparewatt.edge.middleware import context_of
from sparewatt.ledger.deposit_adapters import ChainPaymentAdapter
from sparewatt.ledger.payouts import NANO_PER_MICRO, PayoutService
from sparewatt.protocol.api.payouts import (
    Payout,
    PayoutBatch,
    PayoutBatchCreation,
    PayoutBatchLeaves,
    PayoutBatchList,
    PayoutClaim,
    PayoutClaimList,
    PayoutLeaf,
    PayoutList,
    PayoutProof,
    StruckDecision,
)
from sparewatt.store.chain_requests import ChainRequestRow, ChainRequestState
from sparewatt.store.payouts import AccountPayoutRow, PayoutBatchRow, PayoutLeafRow, PayoutStore

_EPOCH = re.compile(r"[1-9]\d{0,17}")
_POOLS: tuple[Literal["earned", "rewards"], ...] = ("earned", "rewards")
_ADDRESS = re.compile(r"0x[0-9a-f]{40}")


@dataclass(slots=True, kw_only=True)
class PayoutEndpoints:
    accounts: AccountFinder
    payouts: PayoutStore
    settlement: PayoutService
    rewards: PayoutStore
    reward_settlement: PayoutService
    on_chain: ChainPaymentAdapter | None
    """None where the network has no chain."""
    public_limiter: PublicRateLimiter
    """By address, for endpoints without a login."""
    clock: Clock

    @endpoint("GET /v1/payouts", access="node", query=("limit", "after", "account"))
    async def list_payouts(self, request: web.Request, principal: Principal) -> PayoutList:
        """List the payouts of your account, newest first; operators may name another account."""
        page = read_page(request, now_unix_s=self.clock.unix_s())
        account = await select_account(request, principal, self.accounts)
        rows = await self.payouts.list_payouts(account, before=_epoch_or_none(page.after), limit=page.limit)
        return PayoutList(data=[payout_of(row) for row in rows], next=page.next(rows, lambda row: row.epoch))

    @endpoint("POST /v1/payouts/claim", access="node", query=("account",))
    async def claim(self, request: web.Request, principal: Principal) -> PayoutClaimList:
        """Claim what an account earned, as far as it is on the chain. It goes to the account's own address."""
        account = await select_account(request, principal, self.accounts)
        if self.on_chain is None:
            raise NoChain("A claim of what was earned")
        claims = await self.on_chain.claim(account)
        waiting_micro, _, claimed_micro = await self.payouts.payout_totals(account)
        return PayoutClaimList(
            data=[claim_of(row) for row in claims],
            account=account,
            **_amounts(claimed=claimed_micro, waiting=waiting_micro),
        )

    @endpoint("GET /v1/payouts/batches", access="public", query=("limit", "after", "pool"))
    async def list_batches(self, request: web.Request) -> PayoutBatchList:
        """List the payout batches and their roots, newest first."""
        self.public_limiter.admit(address=context_of(request).address)
        page = read_page(request, now_unix_s=self.clock.unix_s())
        rows = await self._pool(request).batches(before=_epoch_or_none(page.after), limit=page.limit)
        return PayoutBatchList(data=[batch_of(row) for row in rows], next=page.next(rows, lambda row: row.epoch))

    @endpoint("POST /v1/payouts/batches", access="operator", status=201, other_statuses=(200,))
    async def make_batch(self, _: web.Request, __: Principal) -> Reply[PayoutBatchCreation]:
        """Make the next payout batch now, instead of at its time. Operators only."""
        row = await self.settlement.make_batch()
        creation = PayoutBatchCreation(made=row is not None, batch=batch_of(row) if row else None)
        return Reply(creation, status=201 if row else 200)

    @endpoint("POST /v1/payouts/batches/{epoch}/decide", access="operator", body=StruckDecision)
    async def decide_struck(self, request: web.Request, _: Principal) -> PayoutBatchCreation:
        """Post a batch again whose root the guardian struck, or make it anew. Operators only.

        Made anew, it and all batches after it are taken back first, and computed again from the books.
        """
        body, row = await read_json(request, StruckDecision), await self._find_batch(request)
        if not row.is_struck:
            raise InvalidField(
                f"The root of batch {row.epoch} is not struck: there is nothing to decide.", param="epoch"
            )
        if body.action == "post_again":
            await self.payouts.post_struck_again(row.epoch)
            return PayoutBatchCreation(made=False, batch=batch_of(row))
        await self.payouts.undo_struck(row.epoch, unix_s=self.clock.unix_s())
        made = await self.settlement.make_batch()
        return PayoutBatchCreation(made=made is not None, batch=batch_of(made) if made else None)

    @endpoint("GET /v1/payouts/batches/{epoch}", access="public", query=("limit", "after", "pool"))
    async def show_batch(self, request: web.Request) -> PayoutBatchLeaves:
        """Show one payout batch, with a page of its leaves in the order of the tree."""
        self.public_limiter.admit(address=context_of(request).address)
        row = await self._find_batch(request)
        page = read_page(request, now_unix_s=self.clock.unix_s())
        leaves = await self._pool(request).leaves_at(row.epoch, after=page.after, limit=page.limit)
        following = page.next(leaves, lambda leaf: leaf.address)
        batch = msgspec.structs.asdict(batch_of(row))
        return PayoutBatchLeaves(**batch, data=[leaf_of(leaf) for leaf in leaves], next=following)

    @endpoint("GET /v1/payouts/batches/{epoch}/proof", access="node", query=("address", "pool"))
    async def show_proof(self, request: web.Request, principal: Principal) -> PayoutProof:
        """Show the Merkle proof by which the settlement contract pays an address; by default your account's."""
        row = await self._find_batch(request)
        address = request.query.get("address") or (await self.accounts.get(principal.account_id)).chain_address or ""
        service = self.settlement if self._pool(request) is self.payouts else self.reward_settlement
        proof = await service.proof(row.epoch, address) if _ADDRESS.fullmatch(address) else None
        if proof is None:
            raise NotFound(f"{address[:60]!r} has nothing in batch {row.epoch}. 'sparewatt payouts list' shows yours.")
        batch, path = msgspec.structs.asdict(batch_of(row)), ["0x" + sibling.hex() for sibling in proof.path]
        return PayoutProof(**batch, leaf=leaf_of(proof.leaf), index=proof.index, path=path)

    def _pool(self, request: web.Request) -> PayoutStore:
        """By the query: what was earned, or era rewards."""
        return self.payouts if choice(request, "pool", _POOLS) == "earned" else self.rewards

    async def _find_batch(self, request: web.Request) -> PayoutBatchRow:
        epoch = request.match_info["epoch"]
        row = await self._pool(request).find_batch(int(epoch)) if _EPOCH.fullmatch(epoch) else None
        if row is None:
            raise NotFound(f"There is no payout batch {epoch[:40]!r}. 'sparewatt payouts batches' shows them.")
        return row


def _epoch_or_none(text: str) -> int | None:
    if not text:
        return None
    if not _EPOCH.fullmatch(text):
        raise InvalidField("'after' is the number of a batch.", param="after")
    return int(text)


# replies


def payout_of(row: AccountPayoutRow) -> Payout:
    return Payout(
        epoch=row.epoch,
        created_at=row.unix_s,
        address=row.address,
        **_amounts(amount=row.added_micro, earned=row.earned_micro),
        state="ready" if row.posted_unix_s is None else "claimed" if row.claimed else "posted",
        posted_at=row.posted_unix_s,
    )


def batch_of(row: PayoutBatchRow) -> PayoutBatch:
    return PayoutBatch(
        epoch=row.epoch,
        created_at=row.unix_s,
        root="0x" + row.root.hex(),
        leaves=row.leaves,
        **_amounts(promised=row.promised_micro, added=row.added_micro),
        state="posted" if row.posted_unix_s is not None else "ready",
        posted_at=row.posted_unix_s,
        posted_tx=row.posted_tx,
    )


def claim_of(row: ChainRequestRow) -> PayoutClaim:
    return PayoutClaim(
        address=row.address,
        epoch=row.params.epoch,
        **_amounts(amount=row.micro),
        state="claimed" if row.state is ChainRequestState.DONE else "failed",
        reason=row.reason,
        tx=row.tx,
    )


def leaf_of(leaf: PayoutLeafRow) -> PayoutLeaf:
    return PayoutLeaf(address=leaf.address, earned_micro=leaf.earned_micro, spent_micro=leaf.spent_micro)


def _amounts(**micro: int) -> dict[str, Any]:
    """The chain has six decimals: `…_micro` is integer micro-dollars, `…_usd` the same as an exact decimal string."""
    usd = {f"{name}_usd": format_usd(amount * NANO_PER_MICRO) for name, amount in micro.items()}
    return usd | {f"{name}_micro": amount for name, amount in micro.items()}
