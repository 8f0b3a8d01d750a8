"""Requests of orders and leases: ORDER, REOPEN, CANCEL, PAUSE, RESUME, CLOSE, TOP_UP, UPDATE."""

from __future__ import annotations

from sparewatt.chain.requests.context import RequestContext
from sparewatt.chain.requests.handler import RequestHandler
from sparewatt.store.request_params import ChainRequestKind


def lease_handlers(context: RequestContext) -> dict[ChainRequestKind, RequestHandler]:
    del context
    return {}
