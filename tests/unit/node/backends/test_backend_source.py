"""A file is served only where llama.cpp is installed; otherwise the error says how to install it."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import aiohttp
import pytest

from sparewatt.core.clock import SystemClock
from sparewatt.core.errors import StartupError
from sparewatt.core.rng import seeded
from sparewatt.machine.children import ChildSpec, Supervisor
from sparewatt.node.backends import backend_source
from sparewatt.node.backends.backend_source import OwnServer, check_backend_url, how_to_serve, model_server
from tests.unit.node.rig import node_settings


async def test_without_llama_cpp_the_join_fails_at_once_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend_source, "has_llama", lambda: False)
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    settings = node_settings(tmp_path, serve=file)
    async with aiohttp.ClientSession() as session:
        with pytest.raises(StartupError, match="pip install xllamacpp"):
            async with model_server(settings, session, clock=SystemClock(), rng=seeded(1)):
                pass
    assert not (tmp_path / "llama.log").exists()


@pytest.mark.parametrize(("has_llama", "is_advised"), [(True, False), (False, True)])
def test_advice_to_serve_a_file_names_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, *, has_llama: bool, is_advised: bool
) -> None:
    monkeypatch.setattr(backend_source, "has_llama", lambda: has_llama)
    assert ("pip install xllamacpp" in how_to_serve()) is is_advised
    assert "--serve" in how_to_serve()


def test_the_extra_for_serving_brings_no_more_than_a_node_and_llama_cpp() -> None:
    project = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text())["project"]
    first, second = project["optional-dependencies"]["serve"]
    assert first == "sparewatt[node]"
    assert second.startswith("xllamacpp")


@pytest.mark.parametrize("url", ["banana", "127.0.0.1:8080", "ftp://x", "http://", "http://a:99999", ""])
def test_a_bad_backend_address_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(StartupError, match=r"It looks like http://127\.0\.0\.1:8080"):
        check_backend_url(url)


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080", "https://models.example/v1", "http://[::1]:1"])
def test_a_valid_backend_address_is_accepted(url: str) -> None:
    check_backend_url(url)


async def test_a_server_that_gave_way_to_a_lease_is_not_looked_for(tmp_path: Path) -> None:
    settings = node_settings(tmp_path)
    async with (
        aiohttp.ClientSession() as session,
        model_server(settings, session, clock=SystemClock(), rng=seeded(1), stopped_url="http://127.0.0.1:9") as found,
    ):
        assert (found.url, found.own) == ("http://127.0.0.1:9", None)


async def test_a_server_of_the_agents_own_stops_and_starts(tmp_path: Path) -> None:
    argv = (sys.executable, "-c", "import time; time.sleep(60)")
    async with Supervisor(clock=SystemClock(), rng=seeded(1), on_exit=lambda _: None) as supervisor:
        own = OwnServer(supervisor=supervisor, child=ChildSpec(name="server", argv=argv, log_path=None, drain_s=1))
        for _ in range(2):
            await own.start()
            await own.start()
            assert len(supervisor.pids()) == 1
            await own.stop()
            await own.stop()
            assert supervisor.pids() == {}
