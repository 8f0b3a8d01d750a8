"""/v1/payouts: what was put into batches for the chain. Batches are public: anybody can check a root."""

from __future__ import annotations

import re
from typing import Any

from aiohttp import web

from sparewatt.core.errors import ChainUnavailable, InvalidField, NotFound
from sparewatt.core.money import format_usd
from sparewatt.gateway.http import address_of, authenticate, authenticate_operator, json_reply, listing
from sparewatt.gateway.money.credits import account_asked
from sparewatt.gateway.money.pages import read_page
from sparewatt.gateway.services import Services, services_of
from sparewatt.ledger.settlement import NANO_PER_MICRO
from sparewatt.store.payouts import BatchRow, LeafRow, PaidRow
from sparewatt.store.requests import RequestRow, RequestState

_EPOCH = re.compile(r"[1-9]\d{0,17}")
_ADDRESS = re.compile(r"0x[0-9a-f]{40}")


async def list_payouts(request: web.Request) -> web.StreamResponse:
    """To an account, newest first."""
    services = services_of(request)
    who = await authenticate(request, "node")
    page = read_page(request, now_unix_s=services.clock.unix_s())
    account = await account_asked(request, who)
    rows = await services.database.payouts.paid_to(account, before=_epoch_or_none(page.after), limit=page.limit)
    following = str(rows[-1].epoch) if len(rows) == page.limit else None
    return json_reply(listing([_describe_payment(row) for row in rows]) | {"next": following})


async def list_batches(request: web.Request) -> web.StreamResponse:
    services = _published(request)
    page = read_page(request, now_unix_s=services.clock.unix_s())
    rows = await services.database.payouts.batches(before=_epoch_or_none(page.after), limit=page.limit)
    following = str(rows[-1].epoch) if len(rows) == page.limit else None
    return json_reply(listing([describe_batch(row) for row in rows]) | {"next": following})


async def make_batch(request: web.Request) -> web.StreamResponse:
    """Now, instead of at its time."""
    services = services_of(request)
    await authenticate_operator(request)
    batch = await services.money.settlement.make_batch()
    told = {"made": batch is not None, "batch": describe_batch(batch) if batch else None}
    return json_reply(told, status=201 if batch else 200)


async def claim(request: web.Request) -> web.StreamResponse:
    """Fetch what the account earned, as far as it is on the chain: to its own address, whoever asks."""
    services = services_of(request)
    account = await account_asked(request, await authenticate(request, "node"))
    if services.money.on_chain is None:
        raise ChainUnavailable("This network has no chain: what was earned stays in its books.")
    ended = await services.money.on_chain.claim(account)
    waiting, _, claimed = await services.database.payouts.settled(account)
    told = {**_micro("claimed", claimed), **_micro("waiting", waiting)}
    return json_reply(listing([_describe_claim(row) for row in ended]) | {"account": account, **told})


async def show_batch(request: web.Request) -> web.StreamResponse:
    """With a page of its leaves, in the order of the tree."""
    services = _published(request)
    batch = await _batch(request)
    page = read_page(request, now_unix_s=services.clock.unix_s())
    leaves = await services.database.payouts.leaves_at(batch.epoch, after=page.after, limit=page.limit)
    following = leaves[-1].address if len(leaves) == page.limit else None
    return json_reply(describe_batch(batch) | {"data": [_describe_leaf(leaf) for leaf in leaves], "next": following})


async def show_proof(request: web.Request) -> web.StreamResponse:
    """What the address of an account shows to the contract."""
    services = services_of(request)
    who = await authenticate(request, "node")
    batch = await _batch(request)
    address = request.query.get("address") or (await services.people.show(who.account_id)).chain_address or ""
    proof = await services.money.settlement.proof(batch.epoch, address) if _ADDRESS.fullmatch(address) else None
    if proof is None:
        raise NotFound(f"{address[:60]!r} has nothing in batch {batch.epoch}. 'sparewatt payouts list' shows yours.")
    path = ["0x" + sibling.hex() for sibling in proof.path]
    return json_reply(describe_batch(batch) | {"leaf": _describe_leaf(proof.leaf), "index": proof.index, "path": path})


def _published(request: web.Request) -> Services:
    """Nobody has to say who they are here, but an address may not ask without end. Raises RateLimited."""
    services = services_of(request)
    services.doors.published.knock(address=address_of(request))
    return services


async def _batch(request: web.Request) -> BatchRow:
    wanted = request.match_info["epoch"]
    found = await services_of(request).database.payouts.find_batch(int(wanted)) if _EPOCH.fullmatch(wanted) else None
    if found is None:
        raise NotFound(f"There is no payout batch {wanted[:40]!r}. 'sparewatt payouts batches' shows them.")
    return found


def _epoch_or_none(text: str) -> int | None:
    if not text:
        return None
    if not _EPOCH.fullmatch(text):
        raise InvalidField("'after' is the number of a batch.", param="after")
    return int(text)


def describe_batch(batch: BatchRow) -> dict[str, Any]:
    return {
        "epoch": batch.epoch,
        "created_at": batch.unix_s,
        "root": "0x" + batch.root.hex(),
        "leaves": batch.leaves,
        "promised_micro": batch.promised_micro,
        "promised_usd": _usd(batch.promised_micro),
        "added_micro": batch.added_micro,
        "added_usd": _usd(batch.added_micro),
        "state": "posted" if batch.posted_unix_s is not None else "ready",
        "posted_at": batch.posted_unix_s,
        "posted_tx": batch.posted_tx,
    }


def _describe_leaf(leaf: LeafRow) -> dict[str, Any]:
    """Without the account behind the address: a leaf is public."""
    return {"address": leaf.address, "earned_micro": leaf.earned_micro, "spent_micro": leaf.spent_micro}


def _describe_payment(row: PaidRow) -> dict[str, Any]:
    state = "ready" if row.posted_unix_s is None else "claimed" if row.claimed else "posted"
    return {
        "epoch": row.epoch,
        "created_at": row.unix_s,
        "address": row.address,
        "amount_micro": row.added_micro,
        "amount_usd": _usd(row.added_micro),
        "earned_micro": row.earned_micro,
        "earned_usd": _usd(row.earned_micro),
        "state": state,
        "posted_at": row.posted_unix_s,
    }


def _describe_claim(row: RequestRow) -> dict[str, Any]:
    return {
        "address": row.address,
        "epoch": row.epoch,
        **_micro("amount", row.micro),
        "state": "claimed" if row.state is RequestState.DONE else "failed",
        "reason": row.reason,
        "tx": row.tx,
    }


def _micro(name: str, micro: int) -> dict[str, Any]:
    return {f"{name}_micro": micro, f"{name}_usd": _usd(micro)}


def _usd(micro: int) -> str:
    return format_usd(micro * NANO_PER_MICRO)
