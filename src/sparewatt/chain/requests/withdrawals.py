"""Requests of money that leaves the contracts: WITHDRAW, EXIT."""

from __future__ import annotations

from sparewatt.chain.requests.context import RequestContext
from sparewatt.chain.requests.handler import RequestHandler
from sparewatt.store.request_params import ChainRequestKind


def withdrawal_handlers(context: RequestContext) -> dict[ChainRequestKind, RequestHandler]:
    del context
    return {}
