from __future__ import annotations

import pytest

from sparewatt.cli.context import resolve_network
from sparewatt.cli.credentials import credentials_file, forget_login, read_logins, save_login
from sparewatt.cli.errors import CliError
from tests.unit.cli.conftest import a_login


def test_options_win_over_environment_and_that_over_the_login() -> None:
    save_login(a_login("https://a.example/v1"))
    save_login(a_login("https://b.example/v1", "sk-sw-b"))
    assert resolve_network(environ=None).base_url == "https://b.example/v1"
    assert resolve_network(base_url="https://a.example").api_key == "sk-sw-login"
    env = {"SPAREWATT_BASE_URL": "https://a.example/v1", "SPAREWATT_API_KEY": "sk-sw-env"}
    assert resolve_network(environ=env).api_key == "sk-sw-env"
    assert resolve_network(base_url="https://a.example", api_key="sk-sw-flag", environ=env).api_key == "sk-sw-flag"


def test_a_login_s_key_goes_to_no_other_address() -> None:
    save_login(a_login("https://a.example/v1"))
    with pytest.raises(CliError, match="no API key for https"):
        resolve_network(base_url="https://c.example")


def test_forgetting_one_network_keeps_the_others() -> None:
    save_login(a_login("https://a.example/v1"))
    save_login(a_login("https://b.example/v1"))
    forget_login(a_login("https://b.example/v1"))
    assert [login.base_url for login in read_logins()] == ["https://a.example/v1"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"logins": [{}]}', '{"logins": [{"base_url": 1}]}'])
def test_a_damaged_file_is_reported_and_replaced_by_the_next_login(text: str) -> None:
    path = credentials_file()
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(CliError, match="damaged"):
        read_logins()
    save_login(a_login("https://a.example/v1"))
    assert len(read_logins()) == 1
