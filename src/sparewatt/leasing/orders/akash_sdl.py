"""Reads an Akash SDL, version 2: https://akash.network/docs/developers/deployment/akash-sdl/syntax-reference. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparewatt.core.errors import UnsupportedParameter
from sparewatt.leasing.orders.foreign_format import leave_out, only_service, translate
from sparewatt.leasing.orders.translated_order import TranslatedOrder

_KNOWN = {"version", "services", "profiles", "deployment"}


def read_sdl(document: Mapping[str, Any]) -> TranslatedOrder:
    """Raises InvalidField, or UnsupportedParameter for what cannot be translated without another meaning."""
    if "endpoints" in document:
        raise UnsupportedParameter("'endpoints': leases have no address of their own.", param="endpoints")
    order = translate(only_service(document))
    leave_out(order, sorted(set(map(str, document)) - _KNOWN))
    order.note("An SDL has no duration: the order is for one hour, unless you give --duration.")
    return order.finish()
