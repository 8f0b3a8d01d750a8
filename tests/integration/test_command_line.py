"""The command line against a real network: what it prints, and with which status it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from sparewatt.testing import expected_text, render_chat
from tests.integration.networks import Network


def run(network: Network, *words: str, key: str | None = None, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """`sparewatt WORDS` on the machine where the network was started, with nothing set in the environment."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("SPAREWATT_")}
    home = str(network.data.parent)
    env |= {"HOME": home, "XDG_STATE_HOME": home, "XDG_CONFIG_HOME": home}
    if key is not None:
        env |= {"SPAREWATT_BASE_URL": network.base_url, "SPAREWATT_API_KEY": key}
    argv = [sys.executable, "-m", "sparewatt", *words]
    return subprocess.run(argv, env=env, input=stdin, capture_output=True, text=True, timeout=60, check=False)


def test_chat_answers_and_tells_who_did(shared_network: Network) -> None:
    ended = run(shared_network, "chat", shared_network.model, "what is the time")
    assert ended.returncode == 0, ended.stderr
    rendered = render_chat([{"role": "user", "content": "what is the time"}])
    assert ended.stdout.strip() == expected_text(rendered).strip()
    for word in ("first token", "tokens/s", "match_"):
        assert word in ended.stderr


def test_the_network_last_started_is_found_without_any_setting(shared_network: Network) -> None:
    ended = run(shared_network, "models", "--json")
    assert ended.returncode == 0, ended.stderr
    assert [model["id"] for model in json.loads(ended.stdout)["data"]] == [shared_network.model]


def test_nodes_shows_all_of_them(shared_network: Network) -> None:
    ended = run(shared_network, "nodes")
    assert ended.returncode == 0, ended.stderr
    assert all(name in ended.stdout for name in ("node-1", "node-2"))


def test_a_match_is_explained_by_its_id(shared_network: Network) -> None:
    told = run(shared_network, "chat", shared_network.model, "explain me").stderr
    match_id = next(word for word in told.split() if word.startswith("match_"))
    ended = run(shared_network, "match", "explain", match_id)
    assert ended.returncode == 0, ended.stderr
    assert "node-1" in ended.stdout


def test_a_created_key_works_until_it_is_revoked(shared_network: Network) -> None:
    made = run(shared_network, "keys", "create", "cli-test", "--json")
    key = json.loads(made.stdout)
    assert run(shared_network, "models", key=key["key"]).returncode == 0
    assert run(shared_network, "keys", "revoke", key["id"]).returncode == 0
    ended = run(shared_network, "models", key=key["key"])
    assert ended.returncode == 3
    assert key["key"] not in ended.stderr + ended.stdout


@pytest.mark.parametrize(
    ("words", "scope"),
    [(("keys",), "admin"), (("keys", "revoke", "key_1"), "admin"), (("node", "token"), "node")],
)
def test_a_key_without_the_scope_is_told_which_it_needs_and_who_may(
    shared_network: Network, words: tuple[str, ...], scope: str
) -> None:
    key = run(shared_network, "keys", "create", "cli-scope-test").stdout.strip()
    ended = run(shared_network, *words, key=key)
    assert ended.returncode == 3
    assert f"needs the scope '{scope}'" in ended.stderr
    assert "--as operator" in ended.stderr  # the network was started on this machine
    assert f"{key[:12]}…" in ended.stderr
    assert key not in ended.stderr


def test_json_of_an_answer_tells_who_gave_it(shared_network: Network) -> None:
    told = json.loads(run(shared_network, "chat", shared_network.model, "hello", "--json").stdout)["sparewatt"]
    assert told["match_id"].startswith("match_")
    assert told["node"].startswith("0x")
    assert told["attempts"] == 1


def test_a_join_line_is_printed_alone_and_so_is_a_token(shared_network: Network) -> None:
    ended = run(shared_network, "node", "token")
    assert ended.returncode == 0, ended.stderr
    [line] = ended.stdout.splitlines()
    assert f"sparewatt node join {shared_network.root_url} --token join-sw-" in line
    ended = run(shared_network, "node", "token", "--quiet")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip().startswith("join-sw-")
    assert len(ended.stdout.split()) == 1


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("models", "show", "no/such/model"), 4),
        (("match", "explain", "match_nothing"), 4),
        (("keys", "revoke", "key_nothing"), 4),
        (("match", "no-such-model"), 5),
        (("chat", "no-such-model", "hello"), 4),
        (("chat",), 2),
        (("nonsense",), 2),
    ],
)
def test_the_status_says_what_went_wrong(shared_network: Network, words: tuple[str, ...], status: int) -> None:
    ended = run(shared_network, *words)
    assert ended.returncode == status, ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_wrong_key_ends_with_3(shared_network: Network) -> None:
    ended = run(shared_network, "models", key="sk-sw-wrong")
    assert ended.returncode == 3
    assert "sk-sw-wrong" not in ended.stderr


def test_a_person_signs_up_makes_and_limits_a_key_and_logs_out(shared_network: Network) -> None:
    """Under a home of their own, where nothing is known but the address."""
    home = shared_network.data.parent / "ann"
    home.mkdir()

    def ann(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        env = {name: value for name, value in os.environ.items() if not name.startswith("SPAREWATT_")}
        env |= {name: str(home) for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME")}
        argv = [sys.executable, "-m", "sparewatt", *words]
        return subprocess.run(argv, env=env, input=stdin, capture_output=True, text=True, timeout=60, check=False)

    where = ("--base-url", shared_network.base_url, "--email", "ann-cli@example.org")
    made = ann("signup", *where, stdin="correct horse battery\n")
    assert made.returncode == 0, made.stderr
    me = json.loads(ann("whoami", "--json").stdout)
    assert (me["account"]["email"], me["role"]) == ("ann-cli@example.org", "user")
    key = json.loads(ann("keys", "create", "app", "--budget", "5/day", "--expires", "30d", "--json").stdout)
    assert key["budget"] == {"nano": 5_000_000_000, "usd": "5", "period": "day"}
    limited = ann("keys", "limit", key["id"], "--budget", "none", "--requests-per-min", "60")
    assert "60 requests/min" in limited.stdout, limited.stderr
    assert ann("accounts").returncode == 3
    assert ann("logout").returncode == 0
    assert ann("whoami").returncode == 1
    wrong = ann("login", *where, stdin="wrong horse battery\n")
    assert (wrong.returncode, "battery" in wrong.stderr) == (3, False)
    token = run(shared_network, "accounts", "reset-password", "ann-cli@example.org").stdout.strip()
    reset = ann("password", "reset", *where[:2], stdin=f"{token}\nanother horse battery\n")
    assert reset.returncode == 0, reset.stderr
    assert ann("login", *where, stdin="another horse battery\n").returncode == 0
    assert "app" in ann("keys").stdout
