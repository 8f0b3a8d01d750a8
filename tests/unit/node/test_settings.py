"""A node that joins again without flags has the same name, prices and server."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparewatt.core.errors import StartupError
from sparewatt.node.facts.owner_facts import OwnerFacts
from sparewatt.node.settings import (
    SAVED_SETTINGS_FILE,
    SavedSettings,
    merge_saved_settings,
    read_saved_settings,
    save_settings,
)
from tests.unit.node.rig import node_settings

KEPT = SavedSettings(name="attic", region="DE", prompt_usd_per_mtok="0.02", completion_usd_per_mtok="0.04")


def test_settings_are_saved_for_the_next_join(tmp_path: Path) -> None:
    save_settings(node_settings(tmp_path, name="attic", region="DE", hourly_usd="0.30"))
    again = merge_saved_settings({"gateway_url": "http://127.0.0.1:1"}, read_saved_settings(tmp_path))
    assert again == {"gateway_url": "http://127.0.0.1:1", "name": "attic", "region": "DE", "hourly_usd": "0.30"}


def test_a_flag_overrides_a_saved_setting_and_replaces_it(tmp_path: Path) -> None:
    save_settings(node_settings(tmp_path, name="attic", region="DE"))
    values = merge_saved_settings({"region": "local"}, read_saved_settings(tmp_path))
    assert values == {"name": "attic", "region": "local"}
    save_settings(node_settings(tmp_path, **values))
    assert read_saved_settings(tmp_path) == SavedSettings(name="attic")


def test_a_new_price_replaces_all_saved_prices() -> None:
    assert merge_saved_settings({"hourly_usd": "0.20"}, KEPT) == {"name": "attic", "region": "DE", "hourly_usd": "0.20"}


def test_the_served_file_is_saved_as_an_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_settings(node_settings(tmp_path, serve=Path("model.gguf"), serve_as="small", serve_slots=2))
    saved = read_saved_settings(tmp_path)
    assert saved.serves() == str(tmp_path / "model.gguf")
    assert merge_saved_settings({}, saved) == {
        "serve": str(tmp_path / "model.gguf"),
        "serve_as": "small",
        "serve_slots": 2,
    }
    assert merge_saved_settings({"serve_slots": 8}, saved)["serve_as"] == "small"


@pytest.mark.parametrize("given", [{"backend_url": "http://127.0.0.1:8080"}, {"serve": "other.gguf"}])
def test_a_new_server_replaces_all_saved_serving_settings(given: dict[str, str]) -> None:
    assert merge_saved_settings(given, SavedSettings(serve="/m.gguf", serve_as="small", serve_slots=2)) == given


def test_facts_of_the_server_are_saved_and_forgotten_with_it(tmp_path: Path) -> None:
    save_settings(node_settings(tmp_path, server_facts="slots=64"))
    saved = read_saved_settings(tmp_path)
    assert merge_saved_settings({}, saved) == {"server_facts": "slots=64"}
    assert merge_saved_settings({"server_facts": "slots=8"}, saved) == {"server_facts": "slots=8"}
    assert merge_saved_settings({"server_facts": "auto"}, saved) == {}
    assert merge_saved_settings({"backend_url": "http://127.0.0.1:9"}, saved) == {"backend_url": "http://127.0.0.1:9"}


def test_a_served_file_has_the_context_that_its_owner_gave_it(tmp_path: Path) -> None:
    served = {"serve": Path("model.gguf"), "serve_slots": 4, "serve_context": 2048}
    assert node_settings(tmp_path, **served).owner_facts() == OwnerFacts(kv_tokens=4 * 2048)
    assert node_settings(tmp_path, **served, server_facts="kv-tokens=9").owner_facts() == OwnerFacts(kv_tokens=9)
    assert node_settings(tmp_path).owner_facts() == OwnerFacts()


def test_a_fact_that_makes_no_sense_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="slots must be a whole number"):
        node_settings(tmp_path, server_facts="slots=none").owner_facts()


def test_backend_auto_ignores_the_saved_server() -> None:
    assert merge_saved_settings(
        {"backend_url": "auto"}, SavedSettings(backend_url="http://127.0.0.1:9", name="attic")
    ) == {"name": "attic"}


def test_default_settings_write_no_file(tmp_path: Path) -> None:
    save_settings(node_settings(tmp_path))
    assert not (tmp_path / SAVED_SETTINGS_FILE).exists()


@pytest.mark.parametrize("text", ["", "[]", '{"name": 7}', "\xff"])
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / SAVED_SETTINGS_FILE).write_bytes(text.encode("latin-1"))
    with pytest.raises(StartupError, match=SAVED_SETTINGS_FILE):
        read_saved_settings(tmp_path)


# hosts


def test_hosts_are_saved_and_forgotten(tmp_path: Path) -> None:
    save_settings(node_settings(tmp_path, allow_fetch_hosts="images.example.org"))
    saved = read_saved_settings(tmp_path)
    assert merge_saved_settings({}, saved) == {"allow_fetch_hosts": "images.example.org"}
    assert merge_saved_settings({"allow_fetch_hosts": "none"}, saved) == {}


def test_hosts_are_names_in_lower_case_each_once(tmp_path: Path) -> None:
    settings = node_settings(tmp_path, allow_fetch_hosts="Images.Example.org  b.example:8443 images.example.org")
    assert settings.fetch_hosts() == ("images.example.org", "b.example:8443")
    assert node_settings(tmp_path).fetch_hosts() == ()


@pytest.mark.parametrize(
    "given", ["localhost", "127.0.0.1", "[::1]", "*", "*.example.org", "http://a.example", "a.example/b", "a.b" * 100]
)
def test_what_is_no_public_name_is_refused_with_an_example(tmp_path: Path, given: str) -> None:
    with pytest.raises(StartupError, match=r"images\.example\.org"):
        node_settings(tmp_path, allow_fetch_hosts=given).fetch_hosts()


def test_too_many_hosts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="more than 64"):
        node_settings(tmp_path, allow_fetch_hosts=" ".join(f"h{n}.example" for n in range(65))).fetch_hosts()


def test_a_chain_of_the_owners_choice_is_kept_and_forgotten(tmp_path: Path) -> None:
    save_settings(node_settings(tmp_path, chain_url="http://127.0.0.1:8545"))
    saved = read_saved_settings(tmp_path)
    assert merge_saved_settings({}, saved) == {"chain_url": "http://127.0.0.1:8545"}
    assert merge_saved_settings({"chain_url": "none"}, saved) == {}


def test_a_container_socket_is_kept_absolute_and_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_settings(node_settings(tmp_path, container_socket=Path("podman.sock")))
    saved = read_saved_settings(tmp_path)
    assert merge_saved_settings({}, saved) == {"container_socket": str(tmp_path / "podman.sock")}
    assert merge_saved_settings({"container_socket": Path("auto")}, saved) == {}


def test_a_machine_dir_is_kept_absolute_and_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_settings(node_settings(tmp_path, machine_dir=Path("machine")))
    saved = read_saved_settings(tmp_path)
    assert merge_saved_settings({}, saved) == {"machine_dir": str(tmp_path / "machine")}
    assert merge_saved_settings({"machine_dir": Path("auto")}, saved) == {}
