from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparewatt.cli.context import is_this_machine, recent_networks_file, remember_network, resolve_network
from sparewatt.cli.errors import CliError
from tests.unit.cli.canned import MODEL, model_list
from tests.unit.cli.conftest import run_alone
from tests.unit.cli.fake_network import KEY, FakeNetwork

HERE = "http://127.0.0.1:8099/v1"


@pytest.fixture
def started(tmp_path: Path) -> Path:
    """The ready file of a network that was started on this machine."""
    ready_file = tmp_path / "data" / "ready.json"
    ready_file.parent.mkdir()
    ready_file.write_text(json.dumps({"base_url": HERE, "api_key": "last-key", "pid": 1}))
    remember_network(ready_file)
    return ready_file


def test_option_comes_before_environment(started: Path) -> None:
    environ = {"SPAREWATT_BASE_URL": "https://env.example/v1", "SPAREWATT_API_KEY": "env-key"}
    network = resolve_network(base_url="https://option.example/v1", api_key="option-key", environ=environ)
    assert (network.base_url, network.api_key) == ("https://option.example/v1", "option-key")


def test_environment_comes_before_the_last_network(started: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPAREWATT_BASE_URL", "https://env.example/v1")
    monkeypatch.setenv("SPAREWATT_API_KEY", "env-key")
    network = resolve_network()
    assert (network.base_url, network.api_key) == ("https://env.example/v1", "env-key")


def test_last_network_is_the_default(started: Path) -> None:
    network = resolve_network()
    assert (network.base_url, network.api_key) == (HERE, "last-key")


def test_another_key_can_be_used_with_the_last_network(started: Path) -> None:
    assert resolve_network(api_key="mine").api_key == "mine"
    assert resolve_network(api_key="mine").base_url == HERE


def test_key_of_the_last_network_goes_to_its_own_address(started: Path) -> None:
    assert resolve_network(base_url="http://127.0.0.1:8099/").api_key == "last-key"


def test_key_of_the_last_network_is_never_sent_to_another_address(started: Path) -> None:
    with pytest.raises(CliError, match="no API key") as caught:
        resolve_network(base_url="https://elsewhere.example/v1")
    assert caught.value.exit_code == 3


def test_no_network_is_known() -> None:
    result = run_alone("models")
    assert result.exit_code == 1
    assert result.stderr == (
        "error: No network is known. Start one with 'make up' or 'sparewatt up', "
        "or set SPAREWATT_BASE_URL and SPAREWATT_API_KEY.\n"
    )


def test_no_network_is_known_when_its_files_are_gone(started: Path) -> None:
    started.unlink()
    with pytest.raises(CliError, match="No network is known"):
        resolve_network()


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", '{"base_url": 5, "api_key": "k"}', '{"base_url": "http://[::1]/v1"}']
)
def test_a_damaged_ready_file_is_reported(started: Path, text: str) -> None:
    started.write_text(text)
    with pytest.raises(CliError, match="is damaged"):
        resolve_network()


def test_an_unreadable_pointer_is_reported() -> None:
    recent_networks_file().mkdir(parents=True)
    with pytest.raises(CliError, match="cannot be read"):
        resolve_network()


def test_pointer_holds_an_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    remember_network(Path("ready.json"))
    assert json.loads(recent_networks_file().read_text()) == {"ready_files": [str(tmp_path / "ready.json")]}
    assert list(recent_networks_file().parent.iterdir()) == [recent_networks_file()]


def start(folder: Path, *, port: int) -> Path:
    folder.mkdir()
    ready_file = folder / "ready.json"
    ready_file.write_text(json.dumps({"base_url": f"http://127.0.0.1:{port}/v1", "api_key": f"key-{port}"}))
    remember_network(ready_file)
    return ready_file


def test_an_earlier_network_is_found_again_when_the_later_one_is_gone(started: Path, tmp_path: Path) -> None:
    later = start(tmp_path / "later", port=1)
    assert resolve_network().api_key == "key-1"
    later.unlink()
    assert resolve_network().api_key == "last-key"


def test_each_address_gets_the_key_of_its_own_network(started: Path, tmp_path: Path) -> None:
    start(tmp_path / "later", port=1)
    assert resolve_network(base_url=HERE).api_key == "last-key"
    assert resolve_network(base_url="http://127.0.0.1:1").api_key == "key-1"
    with pytest.raises(CliError, match="no API key"):
        resolve_network(base_url="http://127.0.0.1:2")


def test_the_last_five_networks_are_remembered_each_once(tmp_path: Path) -> None:
    files = [start(tmp_path / str(port), port=port) for port in range(1, 8)]
    remember_network(files[4])
    kept = [files[i] for i in (4, 6, 5, 3, 2)]
    assert json.loads(recent_networks_file().read_text()) == {"ready_files": [str(path) for path in kept]}


def test_a_pointer_of_the_first_version_is_read_and_taken_over(started: Path, tmp_path: Path) -> None:
    recent_networks_file().write_text(json.dumps({"ready_file": str(started)}))
    assert resolve_network().api_key == "last-key"
    start(tmp_path / "later", port=1)
    assert resolve_network(base_url=HERE).api_key == "last-key"


@pytest.mark.parametrize("text", ["{", "{}", '{"ready_files": "x"}', '{"ready_files": [5]}', '{"ready_file": ""}'])
def test_a_damaged_pointer_is_reported_and_rewritten(started: Path, text: str) -> None:
    recent_networks_file().write_text(text)
    with pytest.raises(CliError, match="is damaged"):
        resolve_network()
    remember_network(started)
    assert resolve_network().api_key == "last-key"


def test_a_remembered_network_is_not_spoken_to_unencrypted(started: Path) -> None:
    started.write_text(json.dumps({"base_url": "http://10.0.0.2/v1", "api_key": "k"}))
    with pytest.raises(CliError, match="unencrypted"):
        resolve_network()
    assert resolve_network(insecure=True).api_key == "k"


def test_pointer_lies_in_the_home_folder_without_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert recent_networks_file({}) == tmp_path / ".local/state/sparewatt/last.json"


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1/v1", "http://localhost/v1", "http://[::1]:9/v1", "http://0.0.0.0:9/v1"]
)
def test_plain_http_to_this_machine_is_fine(url: str) -> None:
    assert resolve_network(base_url=url, api_key="k").base_url == url


@pytest.mark.parametrize("url", ["http://10.0.0.2:8099/v1", "http://example.org/v1", "http://127.0.0.1.example.org/v1"])
def test_plain_http_to_another_machine_is_refused(url: str) -> None:
    with pytest.raises(CliError, match="unencrypted") as caught:
        resolve_network(base_url=url, api_key="k")
    assert caught.value.exit_code == 2
    assert resolve_network(base_url=url, api_key="k", insecure=True).base_url == url
    assert resolve_network(base_url=url.replace("http:", "https:"), api_key="k").base_url.startswith("https:")


@pytest.mark.parametrize(
    "url", ["example.org/v1", "ftp://x/v1", "http://", "http://[bad", "http://x:99999/v1", "https://x/v1?a=1"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(CliError, match="not an address"):
        resolve_network(base_url=url, api_key="k")


def test_a_password_in_the_address_is_refused_and_not_repeated() -> None:
    result = run_alone("models", "--base-url", "https://me:hunter2@example.org/v1", "--api-key", "k")
    assert result.exit_code == 2
    assert "hunter2" not in result.output


def test_v1_is_added_to_a_bare_address() -> None:
    assert resolve_network(base_url="https://example.org", api_key="k").base_url == "https://example.org/v1"


@pytest.mark.parametrize("key", ["sk-sw-a b", "sk-sw-a\nX: y", "sk-sw-ä"])
def test_a_key_that_cannot_be_sent_is_refused_and_not_repeated(key: str) -> None:
    result = run_alone("models", "--base-url", HERE, "--api-key", key)
    assert result.exit_code == 3
    assert "sk-sw-a" not in result.output


def test_key_is_not_in_the_text_of_a_network() -> None:
    assert KEY not in repr(resolve_network(base_url=HERE, api_key=KEY))


def test_names_that_only_look_local_are_not() -> None:
    assert is_this_machine("app.localhost")
    assert not is_this_machine("localhost.example.org")


def test_commands_find_the_last_network(network: FakeNetwork, tmp_path: Path) -> None:
    ready_file = tmp_path / "ready.json"
    ready_file.write_text(json.dumps({"base_url": network.base_url, "api_key": KEY}))
    remember_network(ready_file)
    network.on("GET /v1/models", model_list(MODEL))
    assert run_alone("models", "-q").stdout == "org/small-model\n"
    assert network.requests[0].headers["Authorization"] == f"Bearer {KEY}"
