"""The gateway's own wheel and the line that installs it."""

from __future__ import annotations

import hashlib
import shlex
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from sparewatt import __version__
from sparewatt.api.operations.own_wheel import Wheel, pack_own_wheel, pack_wheel
from tests.unit.gateway.small_gateway import LENDER, bearer, make_services, running

NAME = f"sparewatt-{__version__}-py3-none-any.whl"


@pytest.fixture(scope="module")
def wheel() -> Wheel:
    packed = pack_own_wheel()
    assert packed is not None
    return packed


def test_the_same_files_give_the_same_bytes(wheel: Wheel) -> None:
    assert pack_own_wheel() == wheel
    assert hashlib.sha256(wheel.data).hexdigest() == wheel.sha256
    files = [("sparewatt/a.py", b"1"), ("sparewatt/b.py", b"2")]
    assert pack_wheel("1.0", files).data == pack_wheel("1.0", files[::-1]).data
    assert pack_wheel("1.0", files).data != pack_wheel("1.0", files[:1]).data


def test_it_holds_the_program_and_nothing_of_this_machine(wheel: Wheel) -> None:
    with zipfile.ZipFile(BytesIO(wheel.data)) as archive:
        names = archive.namelist()
        assert {"sparewatt/cli/main.py", "sparewatt/store/migrations/0001_keys_tokens_nodes.sql"} <= set(names)
        assert f"sparewatt-{__version__}.dist-info/entry_points.txt" in names
        assert f"sparewatt-{__version__}.dist-info/licenses/LICENSE" in names
        assert not [name for name in names if "__pycache__" in name or name.startswith("/") or ".." in name]
        here = str(Path(__file__).parents[4]).encode()
        assert not [name for name in names if here in archive.read(name)]


def test_pip_installs_it_and_the_program_runs(wheel: Wheel, tmp_path: Path) -> None:
    file, target = tmp_path / wheel.name, tmp_path / "site"
    file.write_bytes(wheel.data)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-compile"]
    pip += ["--no-deps", "--no-index"]
    subprocess.run([*pip, "--target", target, file], check=True)
    argv = [sys.executable, "-c", "import sparewatt; print(sparewatt.__file__, sparewatt.__version__)"]
    ran = subprocess.run(argv, check=True, capture_output=True, text=True, env={"PYTHONPATH": str(target)})
    assert ran.stdout.split() == [str(target / "sparewatt" / "__init__.py"), __version__]


async def test_anybody_may_have_it(wheel: Wheel) -> None:
    async with running(make_services()) as client:
        reply = await client.get(f"/dl/{NAME}")
        assert reply.status == 200
        assert await reply.read() == wheel.data
        again = await client.get(f"/dl/{NAME}", headers={"if-none-match": reply.headers["etag"]})
        assert again.status == 304
        told = await (await client.get("/dl")).json()
        assert told["sha256"] == wheel.sha256
        assert told["url"].endswith(f"/dl/{NAME}#sha256={wheel.sha256}")


@pytest.mark.parametrize("name", ["sparewatt-9.9.9-py3-none-any.whl", "..%2f..%2fetc%2fpasswd", "other.whl"])
async def test_nothing_else_is_handed_out(name: str) -> None:
    async with running(make_services()) as client:
        reply = await client.get(f"/dl/{name}")
        assert reply.status == 404
        assert NAME in await reply.text()


async def test_a_token_comes_with_the_line_to_copy(wheel: Wheel) -> None:
    services = make_services(public_url="https://gpu.example")
    async with running(services) as client:
        reply = await client.post("/v1/join-tokens", json={}, headers=bearer(LENDER))
        made = await reply.json()
        assert reply.status == 201, made
        words = shlex.split(made["join_line"])
        assert words[:2] == ["pip", "install"]
        assert words[2] == f"sparewatt[node] @ https://gpu.example/dl/{NAME}#sha256={wheel.sha256}"
        assert words[3:] == ["&&", "sparewatt", "node", "join", "https://gpu.example", "--token", made["token"]]
