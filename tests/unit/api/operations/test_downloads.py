"""GET /dl: the gateway's wheel, and the shell command that installs it."""

from __future__ import annotations

import shlex

import pytest

from sparewatt import __version__
from sparewatt.api.operations.own_wheel import Wheel, pack_own_wheel
from tests.unit.gateway.small_gateway import LENDER, bearer, make_services, running

NAME = f"sparewatt-{__version__}-py3-none-any.whl"


@pytest.fixture(scope="module")
def wheel() -> Wheel:
    packed = pack_own_wheel()
    assert packed is not None
    return packed


async def test_the_wheel_is_public(wheel: Wheel) -> None:
    async with running(make_services()) as client:
        reply = await client.get(f"/dl/{NAME}")
        assert reply.status == 200
        assert await reply.read() == wheel.data
        again = await client.get(f"/dl/{NAME}", headers={"if-none-match": reply.headers["etag"]})
        assert again.status == 304
        info = await (await client.get("/dl")).json()
        assert info["sha256"] == wheel.sha256
        assert info["url"].endswith(f"/dl/{NAME}#sha256={wheel.sha256}")


@pytest.mark.parametrize("name", ["sparewatt-9.9.9-py3-none-any.whl", "..%2f..%2fetc%2fpasswd", "other.whl"])
async def test_no_other_file_is_served(name: str) -> None:
    async with running(make_services()) as client:
        reply = await client.get(f"/dl/{name}")
        assert reply.status == 404
        assert NAME in await reply.text()


async def test_a_join_token_comes_with_its_shell_command(wheel: Wheel) -> None:
    services = make_services(public_url="https://gpu.example")
    async with running(services) as client:
        reply = await client.post("/v1/join-tokens", json={}, headers=bearer(LENDER))
        made = await reply.json()
        assert reply.status == 201, made
        words = shlex.split(made["join_line"])
        assert words[:2] == ["pip", "install"]
        assert words[2] == f"sparewatt[node] @ https://gpu.example/dl/{NAME}#sha256={wheel.sha256}"
        assert words[3:] == ["&&", "sparewatt", "node", "join", "https://gpu.example", "--token", made["token"]]
