"""The control socket: a Unix socket where there are such, else a port and a secret."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from sparewatt.core.rng import seeded
from sparewatt.node.owner.control_socket import (
    PORT_FILE,
    SOCKET_FILE,
    NodeNotRunning,
    ask,
    has_socket_files,
    serve_control,
)


def contents(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def ask_in_thread(data_dir: Path, question: dict[str, Any]) -> dict[str, Any]:
    return await asyncio.to_thread(ask, data_dir, question)


@pytest.mark.parametrize("by_file", [True, False], ids=["socket file", "port and secret"])
async def test_a_command_is_answered_and_no_file_is_left_behind(tmp_path: Path, by_file: bool) -> None:  # noqa: FBT001
    (tmp_path / SOCKET_FILE).write_text("of a node that was killed")
    (tmp_path / PORT_FILE).write_text("of another")
    async with serve_control(tmp_path, lambda body: {"received": json.loads(body)}, rng=seeded(1), by_file=by_file):
        assert await ask_in_thread(tmp_path, {"do": "status"}) == {"received": {"do": "status"}}
        (left,) = contents(tmp_path)
        assert left.stat().st_mode & 0o077 == 0, "nobody else may open it"
    assert contents(tmp_path) == []
    with pytest.raises(NodeNotRunning):
        await ask_in_thread(tmp_path, {"do": "status"})


async def test_on_a_port_a_command_without_the_secret_gets_no_answer(tmp_path: Path) -> None:
    received = list[bytes]()

    def answer(body: bytes) -> dict[str, Any]:
        received.append(body)
        return {}

    async with serve_control(tmp_path, answer, rng=seeded(1), by_file=False):
        port = json.loads((tmp_path / PORT_FILE).read_bytes())["port"]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"guess\n" + b'{"do":"drain"}\n')
        assert await reader.read() == b""
        writer.close()
    assert received == []


@pytest.mark.parametrize("sent", [b"", b"no end", b"\xff\xfe\n", b"x" * (2 << 20) + b"\n"])
async def test_nonsense_on_the_socket_does_not_stop_the_agent(tmp_path: Path, sent: bytes) -> None:
    async with serve_control(tmp_path, lambda body: json.loads(body), rng=seeded(1)):  # noqa: PLW0108 (raises for nonsense)
        reader, writer = await asyncio.open_unix_connection(tmp_path / SOCKET_FILE)
        writer.write(sent)
        writer.write_eof()
        with contextlib.suppress(ConnectionError):  # it may hang up while the rest is still on its way
            assert await reader.read() == b""
        writer.close()
        assert await ask_in_thread(tmp_path, {"a": 1}) == {"a": 1}


def test_a_path_too_long_for_a_socket_falls_back_to_a_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert has_socket_files(Path("/short"))
    assert not has_socket_files(Path("/" + "long" * 30))
    monkeypatch.delattr(socket, "AF_UNIX")
    assert not has_socket_files(Path("/short"))
