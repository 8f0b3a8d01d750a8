"""A prompt is nowhere on disk in plain bytes, whatever route it came by; and what was not stored is gone in an hour."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest

from sparewatt.postgres.server import EmbeddedPostgres
from tests.integration.asking import Reply, ask, chat_body
from tests.integration.networks import Network, start_network, wait_until
from tests.integration.operated import bare_environment, sparewatt

MARKER = f"marker-{secrets.token_hex(12)}"
"""In every prompt, and in everything else that a client may say."""
CONTROL = f"control-{secrets.token_hex(12)}"
"""The name of a key, which the database has in plain text: what the search must find."""
LIMIT = {"max_output_tokens": 4}


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """With a Postgres of its own, whose files are in the data directory."""
    env = {"SPAREWATT_GATEWAY_LOG_LEVEL": "debug", "SPAREWATT_GATEWAY_REQUEST_LOG": "true"}
    flags = ("--engine=deterministic", "--nodes=1")
    with start_network(tmp_path_factory.mktemp("kept"), *flags, env=env) as network:
        yield network


@pytest.fixture(scope="module")
def said(network: Network) -> dict[str, str]:
    """Ids of what is kept, by how it was asked for, after the marker went every way there is."""
    ask(network, "POST", "/v1/keys", {"name": CONTROL})
    ids = {store: _respond(network, **more) for store, more in STORES.items()}
    ids["conversation"] = _converse(network, ids["hour"])
    asyncio.run(_over_socket(network))
    _ask_other_ways(network)
    return ids


STORES: dict[str, dict[str, Any]] = {"hour": {}, "day": {"store": True}, "none": {"store": False}}


def _post(network: Network, path: str, **body: Any) -> Reply:
    reply = ask(network, "POST", path, {"model": network.model, **body})
    assert reply.status == 200, reply.body
    return reply


def _respond(network: Network, **more: Any) -> str:
    about = {"instructions": MARKER, "metadata": {"about": MARKER}, "user": MARKER}
    for stream in (True, False):
        reply = _post(
            network, "/v1/responses", input=f"{MARKER} is what I say.", stream=stream, **about, **LIMIT, **more
        )
    response_id: str = reply.json()["id"]
    return response_id


def _converse(network: Network, previous: str) -> str:
    """In a conversation, by reference, by the response before, in the background and compacted."""
    message = {"type": "message", "role": "user", "content": MARKER, "id": f"msg_{MARKER}"}
    made = ask(network, "POST", "/v1/conversations", {"metadata": {"about": MARKER}, "items": [message]})
    conversation: str = made.json()["id"]
    _post(network, "/v1/responses", input=[message], conversation=conversation, **LIMIT)
    again = _post(network, "/v1/responses", input=MARKER, previous_response_id=previous, **LIMIT).json()
    reference = {"type": "item_reference", "id": again["output"][0]["id"]}
    _post(network, "/v1/responses", input=[reference, message], **LIMIT)
    begun = _post(network, "/v1/responses", input=MARKER, background=True, **LIMIT).json()["id"]
    wait_until(lambda: _status(network, begun) == "incomplete", "the answer is there")
    _post(network, "/v1/responses/compact", input=[message])
    return conversation


def _status(network: Network, response_id: str) -> str | None:
    status: str | None = ask(network, "GET", f"/v1/responses/{response_id}").json().get("status")
    return status


async def _over_socket(network: Network) -> None:
    headers = {"authorization": f"Bearer {network.api_key}"}
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{network.base_url}/responses", headers=headers) as ws,
    ):
        for more in STORES.values():
            asked = {"type": "response.create", "model": network.model, "input": MARKER, **LIMIT, **more}
            await ws.send_json(asked)
            while json.loads(await ws.receive_str(timeout=30))["type"] != "response.incomplete":
                """Until it has been cut."""


def _ask_other_ways(network: Network) -> None:
    """As a chat, whole and streamed, stored and not, in other protocols, and in ways that fail."""
    for more in ({"stream": True}, {"stream": False}, {"stream": True, "store": True, "metadata": {"about": MARKER}}):
        assert ask(network, "POST", "/v1/chat/completions", chat_body(network, MARKER, **more)).status == 200
    for path in ("/v1/messages", "/api/chat"):
        assert ask(network, "POST", path, chat_body(network, MARKER, max_tokens=4)).status == 200
    _post(network, "/v1/completions", prompt=MARKER, max_tokens=4)
    _post(network, "/v1/embeddings", input=MARKER)
    wrong: list[dict[str, Any]] = [
        {"input": [{"type": MARKER}]},
        {"input": MARKER, "previous_response_id": f"resp_{MARKER}"},
        {"input": MARKER, MARKER: True, "temperature": MARKER},
        {"input": f"{MARKER} " * 20_000},
    ]
    for body in wrong:
        assert ask(network, "POST", "/v1/responses", {"model": network.model, **body}).status >= 400


def _files_with(folder: Path, word: str) -> list[str]:
    """Plain, or as Postgres and JSON could have it: in hex, or in UTF-16."""
    forms = [word.encode(), word.encode().hex().encode(), word.encode("utf-16-le")]
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    found = {path: path.read_bytes() for path in files}
    return [str(path.relative_to(folder)) for path, data in found.items() if any(form in data for form in forms)]


def _run(network: Network, statement: str) -> str:
    async def run() -> str:
        connection = await asyncpg.connect(EmbeddedPostgres(network.data / "postgres").dsn)
        try:
            done: str = await connection.execute(statement)
            return done
        finally:
            await connection.close()

    return asyncio.run(run())


def test_no_file_has_the_prompt(network: Network, said: dict[str, str]) -> None:
    assert said
    _run(network, "CHECKPOINT")  # tables, their indexes and the write-ahead log are files now
    control = _files_with(network.data, CONTROL)
    assert any("pg_wal" in name for name in control), control
    assert any("base" in name for name in control), control
    assert _files_with(network.data, MARKER) == []
    assert _files_with(network.log_dir, MARKER) == []


def test_no_backup_has_the_prompt_or_what_is_kept_for_an_hour(
    network: Network, said: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "network.tar"
    made = sparewatt("backup", str(file), f"--data={network.data}", env=bare_environment(tmp_path))
    assert made.returncode == 0, made.stderr
    written = file.read_bytes()
    assert said["day"].encode() in written
    assert said["hour"].encode() not in written
    assert MARKER.encode() not in written


def test_an_hour_later_nothing_that_was_not_stored_opens(network: Network, said: dict[str, str]) -> None:
    assert [_status(network, said[name]) for name in STORES] == ["incomplete", "incomplete", None]
    assert _run(network, "UPDATE transient_responses SET expires_at = now()") != "UPDATE 0"
    assert [_status(network, said[name]) for name in STORES] == [None, "incomplete", None]
    gone = {"model": network.model, "input": "Go on.", "previous_response_id": said["hour"]}
    assert ask(network, "POST", "/v1/responses", gone).error()["code"] == "previous_response_not_found"
    assert ask(network, "GET", f"/v1/conversations/{said['conversation']}").status == 200
