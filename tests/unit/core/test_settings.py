from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
from msgspec import Meta

from sparewatt.core.errors import StartupError
from sparewatt.core.settings import load_settings


@dataclass(frozen=True, slots=True)
class Kettle:
    owner: str
    port: Annotated[int, Meta(ge=0, le=65535)] = 80
    hot: bool = False
    litres: float | None = None
    data_dir: Path | None = None


def load(*, flags: dict[str, Any] | None = None, env: dict[str, str] | None = None, file: Path | None = None) -> Kettle:
    given = {"owner": "ann"} | (flags or {})
    return load_settings(Kettle, section="node", flags=given, env=env or {}, file=file)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "sparewatt.toml"
    path.write_text("[node]\nport = 3\n[gateway]\nanything = 1\n")
    return path


def test_without_anything_the_default_holds() -> None:
    assert load() == Kettle(owner="ann")


def test_the_file_wins_over_the_default(file: Path) -> None:
    assert load(file=file).port == 3


def test_the_environment_wins_over_the_file(file: Path) -> None:
    assert load(file=file, env={"SPAREWATT_NODE_PORT": "2"}).port == 2


def test_a_flag_wins_over_the_environment(file: Path) -> None:
    assert load(file=file, env={"SPAREWATT_NODE_PORT": "2"}, flags={"port": 1}).port == 1


def test_a_flag_that_was_not_given_wins_over_nothing(file: Path) -> None:
    assert load(file=file, flags={"port": None}).port == 3


def test_text_from_the_environment_becomes_what_the_field_is() -> None:
    env = {
        "SPAREWATT_NODE_HOT": "true",
        "SPAREWATT_NODE_LITRES": "1.5",
        "SPAREWATT_NODE_DATA_DIR": "/var/kettle",
    }
    assert load(env=env) == Kettle(owner="ann", hot=True, litres=1.5, data_dir=Path("/var/kettle"))


def test_other_sections_variables_are_left_alone() -> None:
    assert load(env={"SPAREWATT_TEAPOT_PORT": "2", "PORT": "3", "SPAREWATT_API_KEY": "x"}).port == 80


@pytest.mark.parametrize("name", ["SPAREWATT_NODE_PROT", "SPAREWATT_NODE_"])
def test_an_unknown_variable_is_an_error_that_lists_the_known_ones(name: str) -> None:
    with pytest.raises(StartupError, match=r"Unknown setting in \[node\].*Known: data_dir, hot"):
        load(env={name: "2"})


def test_an_unknown_key_in_the_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "typo.toml"
    path.write_text("[node]\nprot = 3\n")
    with pytest.raises(StartupError, match="prot"):
        load(file=path)


@pytest.mark.parametrize(
    ("field", "text"),
    [("port", "many"), ("port", "65536"), ("port", "-1"), ("port", "1.5"), ("hot", "maybe"), ("litres", "warm")],
)
def test_a_wrong_value_is_an_error_that_names_the_field(field: str, text: str) -> None:
    with pytest.raises(StartupError, match=field):
        load(env={f"SPAREWATT_NODE_{field.upper()}": text})


def test_a_path_is_not_made_of_a_number(tmp_path: Path) -> None:
    path = tmp_path / "number.toml"
    path.write_text("[node]\ndata_dir = 5\n")
    with pytest.raises(StartupError, match="data_dir"):
        load(file=path)


def test_a_missing_value_is_an_error_that_names_the_field() -> None:
    with pytest.raises(StartupError, match="owner"):
        load_settings(Kettle, section="node", flags={}, env={})


@pytest.mark.parametrize("content", [b"[node", b"\xff\xfe", b"node = 5\n"])
def test_a_file_that_is_no_settings_file_is_an_error_that_names_it(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.toml"
    path.write_bytes(content)
    with pytest.raises(StartupError, match=r"broken\.toml"):
        load(file=path)


def test_a_file_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"absent\.toml"):
        load(file=tmp_path / "absent.toml")


def test_settings_cannot_be_changed_afterwards() -> None:
    with pytest.raises(AttributeError):
        load().port = 5  # type: ignore[misc]  # that it is an error is the point


def test_a_mistyped_table_in_the_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("[gatway]\nport = 3\n")
    with pytest.raises(StartupError, match=r"gatway.*Known: chain, gateway, node, up"):
        load(file=path)
