"""Tells the terminal of `sparewatt up` when the gateway is not ready, why and where, and when it is again.

It asks `/readyz` on the metrics port, which also says where; once per change a line is shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from sparewatt.machine.backoff import Notify

WATCH_S = 1.0
_CAUSES_MAX = 8


def describe_causes(page: Mapping[str, Any]) -> dict[str, str]:
    """What `/readyz` says is wrong, in words, by code."""
    found: dict[str, str] = {}
    for cause in (page.get("causes") or ())[:_CAUSES_MAX]:
        where = cause.get("where")
        found[str(cause.get("code"))] = f"{cause.get('message')} ({where})" if where else str(cause.get("message"))
    return found


def describe_changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """One line for each cause that is new, and one when none is left."""
    lines = [f"The gateway is not ready: {code.replace('_', ' ')}. {now[code]}" for code in now if code not in before]
    return [*lines, "The gateway is ready again."] if before and not now else lines


async def watch_health(read_page: Callable[[], Awaitable[Mapping[str, Any]]], notify: Notify) -> None:
    """Until it is cancelled. `read_page` returns an empty page if the gateway is silent: then nothing is known."""
    before: dict[str, str] = {}
    while True:
        await asyncio.sleep(WATCH_S)
        page = await read_page()
        if page:
            now = describe_causes(page)
            for line in describe_changes(before, now):
                notify(line)
            before = now
