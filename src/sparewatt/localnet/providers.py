"""Registers the local nodes as providers of leases, each with a bond, once the chain is up. Nothing waits for it.

It uses the network's own API with the key of the account that owns the nodes, as any owner would, so every step may be
repeated: a second start finds them registered and bonded.
"""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sparewatt.core.ids import NodeId
from sparewatt.localnet.bootstrap import LOCAL_NODES_ACCOUNT
from sparewatt.machine.backoff import Notify

BOND_USD = "10"
"""Of each node: an hour of any order up to $10 an hour."""
TRIES_MAX = 20
"""Of each step: the chain may be busy, a node may be starting."""
RETRY_S = 3.0
BONDS_MAX = 5
"""A bond that failed, or that an earlier chain had, is asked for under another id."""
REQUEST_S = 40.0
"""The gateway waits 20 s for the chain."""


class StepFailed(Exception):
    """The gateway refused, or never answered."""


Send = Callable[[str, dict[str, Any]], tuple[int, dict[str, Any]]]
"""Posts a body to a path of the API. Returns status and reply; status 0 if there is none."""


@dataclass(frozen=True, slots=True)
class LocalProviders:
    send: Send
    """May block: it runs in a thread."""
    notify: Notify
    program: str
    """As the user calls it."""

    async def register_all(self, node_ids: Sequence[NodeId]) -> None:
        results = await asyncio.gather(*(self._register(node_id) for node_id in node_ids))
        if failures := [text for text in results if text is not None]:
            self.notify(f"Leases: {failures[0]} 'sparewatt providers register NODE' tries again.")
        elif node_ids:
            self.notify(
                f"{len(node_ids)} nodes are registered as providers of leases, each with its own bond: "
                f"{self.program} providers --account {LOCAL_NODES_ACCOUNT}"
            )

    async def _register(self, node_id: NodeId) -> str | None:
        """Why it failed; None if the node is registered and bonded."""
        try:
            provider = (await self._post("/providers", {"node": node_id}))["provider"]
            for number in range(BONDS_MAX):
                if provider["bond_nano"]:
                    return None
                provider = await self._bond(provider["id"], number)
        except StepFailed as failed:
            return str(failed)
        return None if provider["bond_nano"] else "A bond was not made."

    async def _bond(self, provider: str, number: int) -> dict[str, Any]:
        body = {"usd": BOND_USD, "id": f"up-{provider}-{number}"}
        bonded: dict[str, Any] = (await self._post(f"/providers/{provider}/bond", body))["provider"]
        return bonded

    async def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Raises StepFailed."""
        why = "the gateway does not answer."
        for _ in range(TRIES_MAX):
            status, reply = await asyncio.to_thread(self.send, path, body)
            if status in {200, 201}:
                return reply
            why = str(reply.get("error", {}).get("message", why))
            if status not in {0, 409, 429, 503}:
                break
            await asyncio.sleep(RETRY_S)
        raise StepFailed(why)


@dataclass(frozen=True, slots=True)
class OwnerApi:
    """The network's API, as the owner of the local nodes calls it."""

    base_url: str
    api_key: str

    def send(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """As `Send`."""
        headers = {"Authorization": f"Bearer {self.api_key}", "Content-Type": "application/json"}
        data = json.dumps(body).encode()
        request = urllib.request.Request(f"{self.base_url}{path}", data=data, headers=headers)  # noqa: S310 (our own)
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_S) as reply:  # noqa: S310 (our own loopback address)
                return reply.status, json.load(reply)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _object(error.read())
        except (OSError, ValueError):
            return 0, {}


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
