from __future__ import annotations

import json
import sys
from collections.abc import Callable

import pytest

from sparewatt.cli import chat as talk
from sparewatt.cli import output
from sparewatt.cli.chat import AnswerOrigin, ChatAnswer, NodeNameCache
from sparewatt.cli.client import ApiClient
from sparewatt.cli.context import NetworkContext
from sparewatt.cli.errors import ApiError
from sparewatt.protocol.api.inference import ChatChunk, ChatChunkChoice, ChatDelta
from tests.unit.cli.canned import BERLIN, node
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_network import KEY, FakeNetwork, piece, sse

HEADERS = {
    "x-sparewatt-node": BERLIN,
    "x-sparewatt-region": "eu",
    "x-sparewatt-attempts": "1",
    "x-sparewatt-match-id": "match_1",
}
USAGE = {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 17, "total_tokens": 22}}
HELLO = sse(piece("Grüß"), piece(" Gott", "stop"), USAGE, "[DONE]")


@pytest.fixture
def converse(network: FakeNetwork) -> Callable[..., None]:
    """A conversation in which these lines are typed; an exception among them is raised at the prompt."""

    def converse(*typed: str | BaseException) -> None:
        lines = iter([*typed, EOFError()])

        def read_line(_prompt: str) -> str:
            line = next(lines)
            if isinstance(line, BaseException):
                raise line
            return line

        talk.converse(ApiClient(NetworkContext(network.base_url, KEY)), talk.ChatSettings("m"), [], read_line=read_line)

    return converse


def test_one_question_streams_its_answer_to_stdout(network: FakeNetwork, run: Run) -> None:
    network.streams(HELLO[:40], HELLO[40:41], HELLO[41:], headers=HEADERS)
    result = run("chat", "m", "Hello")
    assert result.exit_code == 0
    assert result.stdout == "Grüß Gott\n"
    parts = result.stderr.strip().split(" · ")
    assert parts[:2] == [BERLIN[:10], "eu"]
    assert parts[2].startswith("first token ")
    assert parts[2].endswith(" ms")
    assert parts[3].endswith(" tokens/s")
    assert parts[4:] == ["17 tokens", "match_1"]


def test_an_answer_that_was_billed_says_what_it_cost(network: FakeNetwork, run: Run) -> None:
    billed = {"choices": [], "usage": {"completion_tokens": 17, "cost": 0.0000153}}
    network.streams(sse(piece("Hi", "stop"), billed, "[DONE]"), headers=HEADERS)
    assert run("chat", "m", "Hello").stderr.strip().endswith("17 tokens · $0.0000153 · match_1")


def test_options_go_into_the_request(network: FakeNetwork, run: Run) -> None:
    network.streams(HELLO)
    words = ["--max-tokens", "9", "--temperature", "0.5", "--system", "Be brief.", "--policy", "neuralgrid"]
    assert run("chat", "m", "Hello", *words).exit_code == 0
    assert network.requests[0].body == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 9,
        "temperature": 0.5,
    }
    assert network.requests[0].headers["X-Sparewatt-Policy"] == "neuralgrid"


def test_without_options_the_network_decides(network: FakeNetwork, run: Run) -> None:
    network.streams(HELLO)
    run("chat", "m", "Hello")
    assert set(network.requests[0].body) == {"model", "messages", "stream", "stream_options"}
    assert "X-Sparewatt-Policy" not in network.requests[0].headers


@pytest.mark.parametrize("words", [[], ["-"]])
def test_a_pipe_is_the_prompt(network: FakeNetwork, run: Run, words: list[str]) -> None:
    network.streams(HELLO)
    assert run("chat", "m", *words, stdin=b"from a pipe \xff").exit_code == 0
    assert network.requests[0].body["messages"] == [{"role": "user", "content": "from a pipe \ufffd"}]


def test_an_empty_pipe_is_a_usage_error(network: FakeNetwork, run: Run) -> None:
    result = run("chat", "m", stdin=" \n")
    assert result.exit_code == 2
    assert network.requests == []


def test_a_pipe_without_end_is_refused(network: FakeNetwork, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(talk, "REQUEST_BODY_BYTES_MAX", 10)
    assert run("chat", "m", stdin="x" * 11).exit_code == 1
    assert network.requests == []


def test_json_prints_the_completion(network: FakeNetwork, run: Run) -> None:
    completion = {"object": "chat.completion", "choices": [{"message": {"role": "assistant", "content": "Hi"}}]}
    network.on("POST /v1/chat/completions", completion, headers=HEADERS)
    result = run("chat", "m", "Hello", "--json")
    told = {"node": BERLIN, "region": "eu", "attempts": 1, "match_id": "match_1", "first_token_ms": None}
    assert json.loads(result.stdout) == completion | {"sparewatt": told}
    assert result.stderr == ""
    assert network.requests[0].body["stream"] is False


def test_json_of_a_network_that_tells_nothing_of_itself(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/chat/completions", {}, headers={"x-sparewatt-attempts": "many", "x-sparewatt-node": ""})
    told = json.loads(run("chat", "m", "Hello", "--json").stdout)["sparewatt"]
    assert set(told.values()) == {None}


def test_json_in_a_conversation_is_a_usage_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(talk, "is_interactive", lambda: True)
    assert run("chat", "m", "--json").exit_code == 2


def test_a_terminal_without_prompt_opens_a_conversation(
    network: FakeNetwork, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(talk, "is_interactive", lambda: True)
    network.streams(HELLO)
    result = run("chat", "m", stdin="Hello\n")
    assert result.exit_code == 0
    assert "Grüß Gott\n" in result.stdout
    assert "Ctrl-D leaves" in result.stderr


def test_an_error_within_the_answer_fails(network: FakeNetwork, run: Run) -> None:
    told = {"error": {"message": "The node went away.", "type": "server_error", "param": None, "code": "no_capacity"}}
    network.streams(sse(piece("Half an"), told))
    result = run("chat", "m", "Hello")
    assert result.exit_code == 1
    assert result.stdout == "Half an\n"
    assert result.stderr.startswith("error: The node went away.\n")


def test_an_answer_without_done_fails(network: FakeNetwork, run: Run) -> None:
    network.streams(sse(piece("Half an")))
    result = run("chat", "m", "Hello")
    assert result.exit_code == 1
    assert "broke off" in result.stderr


def test_an_event_that_is_no_json_fails(network: FakeNetwork, run: Run) -> None:
    network.streams(sse("{oops"))
    assert run("chat", "m", "Hello").exit_code == 1


@pytest.mark.parametrize(
    ("status", "code", "exit_code"),
    [(401, "invalid_api_key", 3), (404, "model_not_found", 4), (503, "no_capacity", 5), (502, "node_failed", 1)],
)
def test_a_refused_question(network: FakeNetwork, run: Run, status: int, code: str, exit_code: int) -> None:
    network.fail("POST /v1/chat/completions", status, code)
    result = run("chat", "m", "Hello")
    assert result.exit_code == exit_code
    assert KEY not in result.output


def test_summary_mentions_what_is_unusual() -> None:
    answer = ChatAnswer(0.0, origin=AnswerOrigin(attempts=2))
    for text, finish_reason, now_s in (("a", None, 0.5), ("b", "length", 1.0)):
        choice = ChatChunkChoice(delta=ChatDelta(content=text), finish_reason=finish_reason)
        answer.add(ChatChunk(choices=[choice]), now_s=now_s)
    assert answer.summary() == (
        "unknown node · unknown region · first token 500 ms · 2.0 tokens/s · 2 tokens · 2 attempts · "
        "cut at the token limit · no match id"
    )


def test_summary_of_an_empty_answer() -> None:
    assert "first token - · - tokens/s · 0 tokens" in ChatAnswer(0.0).summary()


def test_a_conversation_remembers(network: FakeNetwork, converse: Callable[..., None]) -> None:
    network.streams(HELLO)
    converse("One", "  ", "Two")
    assert [message["content"] for message in network.requests[1].body["messages"]] == ["One", "Grüß Gott", "Two"]
    assert len(network.requests) == 2


def test_ctrl_c_at_the_prompt_does_not_leave(network: FakeNetwork, converse: Callable[..., None]) -> None:
    network.streams(HELLO)
    converse(KeyboardInterrupt(), "One")
    assert len(network.requests) == 1


def test_ctrl_c_twice_in_a_row_leaves(network: FakeNetwork, converse: Callable[..., None]) -> None:
    network.streams(HELLO)
    converse(KeyboardInterrupt(), "One", KeyboardInterrupt(), KeyboardInterrupt(), "Two")
    assert len(network.requests) == 1


@pytest.mark.parametrize("word", ["/exit", "/quit", "exit", "quit", " Exit "])
def test_a_word_leaves_the_conversation(network: FakeNetwork, converse: Callable[..., None], word: str) -> None:
    converse(word, "One")
    assert network.requests == []


def test_a_question_that_begins_with_such_a_word_is_sent(network: FakeNetwork, converse: Callable[..., None]) -> None:
    network.streams(HELLO)
    converse("exit codes of bash?", "/help me")
    assert len(network.requests) == 2


def test_help_is_printed_and_not_sent_to_the_model(
    network: FakeNetwork, converse: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    converse("/help")
    assert "/exit or /quit leaves" in capsys.readouterr().err
    assert network.requests == []


def test_a_terminal_shows_the_name_of_the_node_requested_once(
    network: FakeNetwork,
    converse: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    network.streams(HELLO, headers=HEADERS)
    network.on(f"GET /v1/nodes/{BERLIN}", node(BERLIN, "berlin"))
    converse("One", "Two")
    assert capsys.readouterr().err.count("berlin · eu · ") == 2
    assert [seen.method for seen in network.requests] == ["POST", "GET", "POST"]


@pytest.mark.parametrize(("status", "body"), [(404, {}), (200, []), (200, {"name": None})])
def test_a_node_without_a_known_name_is_no_failure(network: FakeNetwork, status: int, body: object) -> None:
    network.on(f"GET /v1/nodes/{BERLIN}", body, status=status)
    names = NodeNameCache(ApiClient(NetworkContext(network.base_url, KEY)))
    assert [names.name_of(BERLIN), names.name_of(BERLIN)] == [None, None]
    assert len(network.requests) == 1


def test_ctrl_c_stops_only_the_answer(
    network: FakeNetwork,
    converse: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    network.streams(HELLO)
    written: list[str] = []

    def interrupted_once(text: str) -> None:
        written.append(text)
        if len(written) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(talk, "_write", interrupted_once)
    converse("One", "Two")
    assert "Stopped." in capsys.readouterr().err
    assert [message["content"] for message in network.requests[1].body["messages"]] == ["One", "Grüß", "Two"]


def test_ctrl_c_in_a_single_answer_ends_the_command(
    network: FakeNetwork, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_text: str) -> None:
        raise KeyboardInterrupt

    network.streams(HELLO)
    monkeypatch.setattr(talk, "_write", interrupted)
    assert run("chat", "m", "Hello").exit_code == 130


def test_a_failed_answer_is_forgotten_and_the_conversation_goes_on(
    network: FakeNetwork, converse: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    network.fail("POST /v1/chat/completions", 503, "no_capacity", "All nodes are busy.")
    converse("One", "Two")
    assert capsys.readouterr().err.count("error: All nodes are busy.") == 2
    assert [message["content"] for message in network.requests[1].body["messages"]] == ["Two"]


def test_a_wrong_key_ends_the_conversation(network: FakeNetwork, converse: Callable[..., None]) -> None:
    network.fail("POST /v1/chat/completions", 401, "invalid_api_key")
    with pytest.raises(ApiError):
        converse("One", "Two")
    assert len(network.requests) == 1


def test_an_answer_cannot_steer_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "a\x1b[2Jb\n\tc👩‍🚀"
    talk._write(text)
    assert capsys.readouterr().out == text
    monkeypatch.setattr(output, "on_terminal", lambda: True)
    talk._write(text)
    assert capsys.readouterr().out == "a[2Jb\n\tc👩‍🚀"


def test_a_system_without_readline_still_converses(
    converse: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "readline", None)
    converse()
