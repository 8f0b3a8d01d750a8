"""A small gateway with one scripted node, and a client of /v1/responses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import ClientResponse

from sparewatt.gateway.services import Services
from sparewatt.testing.clocks import ManualClock
from tests.unit.gateway.small_gateway import USER, Client, bearer, make_services, running
from tests.unit.inference.nodes import MODEL, NOW_S, node_id, some_specs
from tests.unit.inference.scripted import DONE, FINISH, ROLE, USAGE, ScriptedNode, text_event
from tests.unit.store.memory_responses import MemoryResponses
from tests.waiting import until

Json = dict[str, Any]
PATH = "/v1/responses"
STREAMED = (ROLE, text_event("Hel"), text_event("lo"), FINISH, USAGE, DONE)


class Stage:
    def __init__(self) -> None:
        self.services: Services = make_services()
        clock, table = self.services.clock, self.services.table
        assert isinstance(clock, ManualClock)
        self.clock = clock
        table.connect(node_id(1), some_specs(slots=8), now_s=NOW_S)
        self.node = ScriptedNode(1, clock, table)
        self.services.links.links[self.node.id] = self.node.link
        self.client: Client

    @property
    def stored(self) -> MemoryResponses:
        store = self.services.database.responses
        assert isinstance(store, MemoryResponses)
        return store

    async def post(self, body: Json, *, path: str = PATH, key: str = USER, **headers: str) -> ClientResponse:
        body = {"model": MODEL, "input": "Hi"} | body if path == PATH else body
        return await self.client.post(path, headers=bearer(key) | headers, json=body)

    def posting(self, **body: Any) -> asyncio.Task[ClientResponse]:
        return asyncio.ensure_future(self.post(body))

    async def get(self, path: str, *, key: str = USER) -> ClientResponse:
        return await self.client.get(f"{PATH}/{path}", headers=bearer(key))

    async def node_request(self) -> Json:
        """The chat that the node got, once it has one."""
        await until(lambda: self.node.body)
        body: Json = json.loads(self.node.body)
        return body


@asynccontextmanager
async def on_stage() -> AsyncIterator[Stage]:
    stage = Stage()
    async with running(stage.services) as client:
        stage.client = client
        yield stage


async def read_events(reply: ClientResponse) -> tuple[list[Json], bool]:
    """All events, and whether the stream ended with [DONE]."""
    events: list[Json] = []
    done = False
    for block in (await reply.text()).split("\n\n"):
        lines = [line for line in block.splitlines() if not line.startswith(":")]
        if lines == ["data: [DONE]"]:
            done = True
        elif lines:
            kind, data = lines
            event = json.loads(data.removeprefix("data: "))
            assert kind == f"event: {event['type']}"
            events.append(event)
    return events, done


async def error_of(reply: ClientResponse) -> Json:
    error: Json = (await reply.json())["error"]
    return error
