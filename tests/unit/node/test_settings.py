"""A node is called the same, and asks for the same, when it joins again without flags."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparewatt.core.errors import StartupError
from sparewatt.node.settings import (
    SAVED_SETTINGS_FILE,
    SavedSettings,
    merge_saved_settings,
    read_saved_settings,
    save_settings,
)
from tests.unit.node.rig import node_settings

KEPT = SavedSettings(name="attic", region="DE", prompt_usd_per_mtok="0.02", completion_usd_per_mtok="0.04")


def test_what_an_owner_said_once_is_there_at_the_next_join(tmp_path: Path) -> None:
    save_settings(node_settings(tmp_path, name="attic", region="DE", hourly_usd="0.30"))
    again = merge_saved_settings({"gateway_url": "http://127.0.0.1:1"}, read_saved_settings(tmp_path))
    assert again == {"gateway_url": "http://127.0.0.1:1", "name": "attic", "region": "DE", "hourly_usd": "0.30"}


def test_what_is_said_anew_wins_and_is_kept_instead(tmp_path: Path) -> None:
    save_settings(node_settings(tmp_path, name="attic", region="DE"))
    values = merge_saved_settings({"region": "local"}, read_saved_settings(tmp_path))
    assert values == {"name": "attic", "region": "local"}
    save_settings(node_settings(tmp_path, **values))
    assert read_saved_settings(tmp_path) == SavedSettings(name="attic")


def test_a_new_price_takes_the_place_of_all_old_ones() -> None:
    assert merge_saved_settings({"hourly_usd": "0.20"}, KEPT) == {"name": "attic", "region": "DE", "hourly_usd": "0.20"}


def test_what_a_node_serves_with_is_kept_as_a_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_settings(node_settings(tmp_path, serve=Path("model.gguf"), serve_as="small", serve_slots=2))
    kept = read_saved_settings(tmp_path)
    assert kept.serves() == str(tmp_path / "model.gguf")
    assert merge_saved_settings({}, kept) == {
        "serve": str(tmp_path / "model.gguf"),
        "serve_as": "small",
        "serve_slots": 2,
    }
    assert merge_saved_settings({"serve_slots": 8}, kept)["serve_as"] == "small"


@pytest.mark.parametrize("said", [{"backend_url": "http://127.0.0.1:8080"}, {"serve": "other.gguf"}])
def test_a_new_way_of_serving_takes_the_place_of_all_of_the_old_one(said: dict[str, str]) -> None:
    assert merge_saved_settings(said, SavedSettings(serve="/m.gguf", serve_as="small", serve_slots=2)) == said


def test_an_owner_may_go_back_to_whatever_server_is_found() -> None:
    assert merge_saved_settings(
        {"backend_url": "auto"}, SavedSettings(backend_url="http://127.0.0.1:9", name="attic")
    ) == {"name": "attic"}


def test_an_owner_who_says_nothing_leaves_no_file(tmp_path: Path) -> None:
    save_settings(node_settings(tmp_path))
    assert not (tmp_path / SAVED_SETTINGS_FILE).exists()


@pytest.mark.parametrize("text", ["", "[]", '{"name": 7}', "\xff"])
def test_a_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / SAVED_SETTINGS_FILE).write_bytes(text.encode("latin-1"))
    with pytest.raises(StartupError, match=SAVED_SETTINGS_FILE):
        read_saved_settings(tmp_path)
