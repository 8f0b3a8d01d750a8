from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from sparewatt.cli import main as program
from sparewatt.cli.errors import CliError, exit_code_of, redact
from sparewatt.cli.groups import LazyCommand
from sparewatt.core.errors import (
    KeyNotFound,
    NoCapacity,
    NoEligibleNode,
    NotAllowed,
    NotAuthenticated,
    ShuttingDown,
    SparewattError,
    StartupError,
)
from tests.unit.cli.canned import BARE_MODEL, MODEL, model_list
from tests.unit.cli.conftest import Run, run_alone
from tests.unit.cli.fake_network import KEY, FakeNetwork, piece, sse

COMMANDS = [
    ["models"],
    ["models", "list"],
    ["models", "show"],
    ["nodes"],
    ["nodes", "list"],
    ["nodes", "show"],
    ["chat"],
    ["match"],
    ["match", "explain"],
    ["match", "preview"],
    ["keys"],
    ["keys", "create"],
    ["keys", "list"],
    ["keys", "revoke"],
    ["completion"],
]


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> list[click.Command]:
    """A place for one more command, called `extra`."""
    commands: list[click.Command] = []
    monkeypatch.setitem(program.cli._table, "extra", LazyCommand("nowhere:nothing", ""))
    monkeypatch.setattr(LazyCommand, "load", lambda _self: commands[0])
    return commands


def fails_with(error: BaseException) -> click.Command:
    @click.command()
    @click.option("--json", is_flag=True, expose_value=False)
    def command() -> None:
        raise error

    return command


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_of_each_command_has_an_example_and_json(words: list[str]) -> None:
    result = run_alone(*words, "--help")
    assert result.exit_code == 0
    assert "Example:" in result.stdout
    assert "sparewatt " + words[0] in result.stdout.split("Example:")[1]
    assert "--json" in result.stdout


@pytest.mark.parametrize("noun", ["models", "nodes", "keys"])
def test_lists_accept_quiet(noun: str) -> None:
    assert "-q, --quiet" in run_alone(noun, "list", "--help").stdout


def test_help_lists_every_command_without_importing_any() -> None:
    result = run_alone("--help")
    assert result.exit_code == 0
    for name in ("chat", "models", "match", "nodes", "keys", "up", "node", "gateway", "completion"):
        assert f"\n  {name} " in result.stdout


def test_help_is_light_and_fast() -> None:
    script = (
        "import sys; from sparewatt.cli.main import cli\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'aiohttp', 'rich', 'asyncpg', 'msgspec', 'http.client', 'asyncio', 'ssl'}\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)), [m for m in sys.modules if m.startswith('sparewatt.cli.')])"
    )
    started_s = time.monotonic()
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30)
    took_s = time.monotonic() - started_s
    assert "HEAVY [] ['sparewatt.cli.errors', 'sparewatt.cli.groups', 'sparewatt.cli.main']" in done.stdout
    assert took_s < 3  # 0.05 s on an idle machine; the bound only catches an import gone wrong


def test_version() -> None:
    assert run_alone("--version").stdout == "sparewatt, version 0.1.0\n"


def test_no_words_show_help_as_a_usage_error() -> None:
    result = run_alone()
    assert result.exit_code == 2
    assert "Use a network:" in result.stderr


def test_a_mistyped_command_is_a_usage_error_with_the_nearest() -> None:
    result = run_alone("modles")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: No such command 'modles'.")
    assert "'models'" in result.stderr


def test_a_mistyped_option_is_a_usage_error() -> None:
    result = run_alone("models", "--jsno")
    assert result.exit_code == 2
    assert "--jsno" in result.stderr
    assert "Try 'sparewatt models list --help'." in result.stderr


def test_a_mistyped_verb_is_a_usage_error() -> None:
    result = run_alone("models", "shwo")
    assert result.exit_code == 2
    assert "No such command 'shwo'" in result.stderr


def test_a_usage_error_with_json_is_an_object() -> None:
    result = run_alone("models", "list", "--json", "--nope")
    assert result.exit_code == 2
    assert json.loads(result.stderr)["error"]["code"] == "usage"


def test_json_after_two_dashes_is_not_an_option() -> None:
    assert not program.asks_for_json(["chat", "m", "--", "--json"])
    assert program.asks_for_json(["models", "--json"])


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotAuthenticated("no"), 3),
        (NotAllowed("no"), 3),
        (KeyNotFound("no"), 4),
        (NoEligibleNode("no"), 5),
        (NoCapacity("no"), 5),
        (ShuttingDown("no"), 1),
        (StartupError("no"), 1),
        (CliError("no"), 1),
    ],
)
def test_exit_code_of_each_kind_of_error(error: SparewattError, code: int) -> None:
    assert exit_code_of(error) == code


def test_an_error_of_the_product_is_one_line(added: list[click.Command]) -> None:
    added.append(fails_with(StartupError("Port 8099 is taken. Choose another with --port.")))
    result = run_alone("extra")
    assert result.exit_code == 1
    assert result.stderr == "error: Port 8099 is taken. Choose another with --port.\n"


def test_an_error_has_its_next_step_on_the_second_line(added: list[click.Command]) -> None:
    added.append(fails_with(CliError("It rains.", next_step="Take an umbrella.")))
    assert run_alone("extra").stderr == "error: It rains.\nTake an umbrella.\n"


def test_an_error_with_json_is_an_object(added: list[click.Command]) -> None:
    added.append(fails_with(CliError("It rains.", next_step="Take an umbrella.")))
    told = json.loads(run_alone("extra", "--json").stderr)["error"]
    assert (told["message"], told["next_step"], told["code"]) == ("It rains.", "Take an umbrella.", "cli_error")


def test_an_error_that_quotes_a_key_hides_it(added: list[click.Command]) -> None:
    added.append(fails_with(StartupError(f"odd key {KEY}")))
    result = run_alone("extra")
    assert KEY not in result.output
    assert "sk-sw-…" in result.stderr


@pytest.mark.parametrize("text", ["The key sk-sw-4b31f0… was revoked.", "sk-sw-4…", "Bearer sk-sw-…"])
def test_the_start_of_a_key_is_shown(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize("key", ["sk-sw-" + "4b" * 32, "sk-sw-4b31f0", "sk-sw-4b31f01…", "sk-sw-secret…", "sk-sw-a-b…"])
def test_more_than_the_start_of_a_key_is_hidden(key: str) -> None:
    assert redact(f"key {key}").rstrip("…") == "key sk-sw-"


def test_a_key_in_the_wrong_place_is_not_repeated() -> None:
    result = run_alone("models", "list", KEY)
    assert result.exit_code == 2
    assert KEY not in result.output


def test_ctrl_c_ends_without_a_traceback(added: list[click.Command]) -> None:
    added.append(fails_with(KeyboardInterrupt()))
    result = run_alone("extra")
    assert result.exit_code == 130
    assert "Traceback" not in result.output


def test_a_missing_package_says_what_to_install(added: list[click.Command]) -> None:
    added.append(fails_with(ModuleNotFoundError("No module named 'aiohttp'", name="aiohttp")))
    result = run_alone("extra")
    assert result.exit_code == 1
    assert "'aiohttp'" in result.stderr
    assert "pip install 'sparewatt[up]'" in result.stderr


def test_a_missing_module_of_our_own_is_a_bug_and_not_hidden(added: list[click.Command]) -> None:
    added.append(fails_with(ModuleNotFoundError("No module named 'sparewatt.x'", name="sparewatt.x")))
    with pytest.raises(ModuleNotFoundError):
        run_alone("extra")


def test_an_import_path_must_lead_to_a_command() -> None:
    with pytest.raises(TypeError, match="not a click command"):
        LazyCommand("sparewatt.cli.errors:CliError", "").load()


def test_exit_code_of_a_command_can_be_returned(added: list[click.Command]) -> None:
    added.append(fails_with(click.exceptions.Exit(5)))
    assert run_alone("extra").exit_code == 5


@pytest.mark.skipif(os.name == "nt", reason="no such pipes")
def test_a_reader_that_goes_away_is_no_error(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/models", model_list(MODEL | {"id": "m" * 200_000}))
    words = [sys.executable, "-m", "sparewatt", "models", "-q"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such device")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("chars", [10, 200_000])
def test_a_full_disk_is_one_line(
    network: FakeNetwork, run: Run, monkeypatch: pytest.MonkeyPatch, chars: int, unbuffered: str
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    network.on("GET /v1/models", model_list(MODEL | {"id": "m" * chars}))
    with Path("/dev/full").open("w") as full:
        words = [sys.executable, "-m", "sparewatt", "models", "-q"]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "error: The output cannot be written: No space left on device.\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such device")
def test_an_answer_that_cannot_be_written_is_one_line(network: FakeNetwork, run: Run) -> None:
    network.streams(sse(piece("Hello"), "[DONE]"))
    with Path("/dev/full").open("w") as full:
        words = [sys.executable, "-m", "sparewatt", "chat", "m", "Hello"]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "error: The output cannot be written: No space left on device.\n"


def test_another_error_of_the_system_is_a_bug_and_not_hidden(added: list[click.Command]) -> None:
    added.append(fails_with(PermissionError(13, "Permission denied")))
    with pytest.raises(PermissionError):
        run_alone("extra")


def test_a_node_fronts_a_server_or_serves_a_file_but_not_both() -> None:
    result = run_alone("node", "join", "http://127.0.0.1:1", "--backend", "http://127.0.0.1:2", "--serve", "m.gguf")
    assert result.exit_code == 2
    assert "--backend" in result.stderr
    assert "--serve" in result.stderr


def test_an_ascii_terminal_gets_question_marks(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/models", model_list(MODEL | {"id": "modèle"}))
    done = subprocess.run(
        [sys.executable, "-m", "sparewatt", "models", "-q"],
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
    )
    assert done.stdout == b"mod?le\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell: str) -> None:
    result = run_alone("completion", shell)
    assert result.exit_code == 0
    assert "_SPAREWATT_COMPLETE" in result.stdout


def test_completion_as_json() -> None:
    assert json.loads(run_alone("completion", "zsh", "--json").stdout)["shell"] == "zsh"


def test_completion_of_an_unknown_shell_is_a_usage_error() -> None:
    assert run_alone("completion", "tcsh").exit_code == 2


@pytest.mark.parametrize(
    ("typed", "offered"), [("sparewatt mo", "models"), ("sparewatt models ", "show"), ("sparewatt match ", "explain")]
)
def test_completion_offers_commands(typed: str, offered: str) -> None:
    assert f"plain,{offered}" in completed(typed).stdout.splitlines()


def completed(typed: str) -> subprocess.CompletedProcess[str]:
    """What bash is offered for what was typed."""
    words = typed.split(" ")
    env = os.environ | {
        "_SPAREWATT_COMPLETE": "bash_complete",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(words) - 1),
    }
    return subprocess.run([sys.executable, "-m", "sparewatt"], env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("typed", ["sparewatt chat ", "sparewatt chat org/s", "sparewatt models show org/"])
def test_completion_offers_models(network: FakeNetwork, run: Run, typed: str) -> None:
    network.on("GET /v1/models", model_list(MODEL, BARE_MODEL))
    offered = completed(typed).stdout.splitlines()
    assert "plain,org/small-model" in offered
    assert ("plain,bare" in offered) is typed.endswith("chat ")


def test_completion_asks_the_network_that_was_named(network: FakeNetwork) -> None:
    network.on("GET /v1/models", model_list(MODEL))
    typed = f"sparewatt chat --base-url {network.base_url} --api-key {KEY} "
    assert completed(typed).stdout.splitlines() == ["plain,org/small-model"]


def test_completion_without_a_network_is_silent() -> None:
    done = completed("sparewatt chat ")
    assert (done.stdout.strip(), done.stderr) == ("", "")


def test_completion_does_not_wait_for_a_silent_network(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("SPAREWATT_BASE_URL", f"http://127.0.0.1:{server.getsockname()[1]}/v1")
        monkeypatch.setenv("SPAREWATT_API_KEY", KEY)
        started_s = time.monotonic()
        done = completed("sparewatt chat ")
        took_s = time.monotonic() - started_s
    assert (done.stdout.strip(), done.stderr) == ("", "")
    assert took_s < 5  # 1 s and the start of the process; a minute is what a command would wait
