"""`sparewatt chat`: a conversation with a model on a terminal, or one question and its answer.

The answer goes to stdout and nothing else does; who answered and how fast is one line on stderr. Conversations are kept
in memory only and end with the command.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import click
import msgspec

from sparewatt.cli import output
from sparewatt.cli.client import ANSWER_TIMEOUT_S, Client, ErrorObject, decode
from sparewatt.cli.context import POLICIES, json_option, network_options
from sparewatt.cli.errors import CliError, ExitCode
from sparewatt.core.limits import REQUEST_BODY_BYTES_MAX

_PATH = "/chat/completions"

Message = dict[str, str]


class Delta(msgspec.Struct):
    content: str | None = None


class Choice(msgspec.Struct):
    delta: Delta = msgspec.field(default_factory=Delta)
    finish_reason: str | None = None


class Usage(msgspec.Struct):
    completion_tokens: int | None = None


class Chunk(msgspec.Struct):
    """One event of an answer: some text, the usage at the end, or an error in place of the rest."""

    choices: list[Choice] = []
    usage: Usage | None = None
    error: ErrorObject | None = None


@dataclass(slots=True)
class Settings:
    """What is the same for every question of a conversation."""

    model: str
    max_tokens: int | None = None
    temperature: float | None = None
    policy: str | None = None

    def body(self, messages: list[Message], *, stream: bool) -> dict[str, object]:
        asked: dict[str, object] = {"model": self.model, "messages": messages, "stream": stream}
        if stream:
            asked["stream_options"] = {"include_usage": True}
        if self.max_tokens is not None:
            asked["max_tokens"] = self.max_tokens
        if self.temperature is not None:
            asked["temperature"] = self.temperature
        return asked

    def headers(self) -> dict[str, str]:
        return {"X-Sparewatt-Policy": self.policy} if self.policy else {}


@dataclass(slots=True)
class Answer:
    """An answer as it grows; complete or not, it can be described at any time."""

    asked_s: float
    texts: list[str] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    first_token_s: float | None = None
    last_token_s: float | None = None
    counted_tokens: int | None = None
    finish_reason: str | None = None

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def tokens(self) -> int:
        """As the network counts them; until it says, the pieces that came."""
        return len(self.texts) if self.counted_tokens is None else self.counted_tokens

    @property
    def tokens_per_s(self) -> float | None:
        if self.first_token_s is None or self.last_token_s is None or self.last_token_s <= self.first_token_s:
            return None
        return (self.tokens - 1) / (self.last_token_s - self.first_token_s)

    def add(self, chunk: Chunk, *, now_s: float) -> str:
        """Take in one event; returns the text it brought."""
        if chunk.usage and chunk.usage.completion_tokens is not None:
            self.counted_tokens = chunk.usage.completion_tokens
        if not chunk.choices:
            return ""
        choice = chunk.choices[0]
        self.finish_reason = choice.finish_reason or self.finish_reason
        return self._add_text(choice.delta.content or "", now_s=now_s)

    def _add_text(self, text: str, *, now_s: float) -> str:
        if text:
            self.first_token_s = now_s if self.first_token_s is None else self.first_token_s
            self.last_token_s = now_s
            self.texts.append(text)
        return text

    def summary(self) -> str:
        """Who answered, how fast, and under which id to ask why."""
        node = self.headers.get("node")
        waited_ms = None if self.first_token_s is None else (self.first_token_s - self.asked_s) * 1000
        parts = [
            output.short_node(node) if node else "unknown node",
            self.headers.get("region") or "unknown region",
            f"first token {output.format_ms(waited_ms)}",
            f"{output.format_rate(self.tokens_per_s)} tokens/s",
            f"{self.tokens} tokens",
            *self._remarks(),
            self.headers.get("match-id") or "no match id",
        ]
        return " · ".join(parts)

    def _remarks(self) -> list[str]:
        attempts = self.headers.get("attempts", "1")
        remarks = [] if attempts in {"", "0", "1"} else [f"{attempts} attempts"]
        return remarks + (["cut at the token limit"] if self.finish_reason == "length" else [])


@click.command()
@click.argument("model")
@click.argument("prompt", required=False)
@click.option("--system", metavar="TEXT", help="Instructions that come before the conversation.")
@click.option("--max-tokens", type=click.IntRange(min=1), metavar="N", help="Longest answer.")
@click.option("--temperature", type=click.FloatRange(0, 2), metavar="T", help="0 for the likeliest words, up to 2.")
@click.option("--policy", type=click.Choice(POLICIES), help="How the network picks a node.")
@json_option
@network_options
def chat(
    client: Client,
    *,
    model: str,
    prompt: str | None,
    system: str | None,
    max_tokens: int | None,
    temperature: float | None,
    policy: str | None,
    as_json: bool,
) -> None:
    """Talk to MODEL, or ask it one PROMPT.

    Without PROMPT, a terminal opens a conversation, and a pipe is read as the prompt.

    \b
    Example:
      sparewatt chat smollm2-135m
      sparewatt chat smollm2-135m "Name three rivers."
      cat notes.txt | sparewatt chat smollm2-135m --system "Summarise."
    """
    settings = Settings(model, max_tokens=max_tokens, temperature=temperature, policy=policy)
    opening = [{"role": "system", "content": system}] if system else []
    if prompt is None and is_interactive():
        if as_json:
            raise click.UsageError("--json needs a PROMPT or a pipe.")
        converse(client, settings, opening)
        return
    messages = [*opening, {"role": "user", "content": _prompt_text(prompt)}]
    if as_json:
        reply = client.post(
            _PATH, settings.body(messages, stream=False), headers=settings.headers(), timeout_s=ANSWER_TIMEOUT_S
        )
        output.print_json(reply.json())
    else:
        answer_once(client, settings, messages)


def is_interactive() -> bool:
    return sys.stdin.isatty()


def _prompt_text(prompt: str | None) -> str:
    text = prompt if prompt is not None and prompt != "-" else _piped_text()
    if not text.strip():
        raise click.UsageError("The prompt is empty.")
    return text


def _piped_text() -> str:
    piped = sys.stdin.buffer.read(REQUEST_BODY_BYTES_MAX + 1)
    if len(piped) > REQUEST_BODY_BYTES_MAX:
        raise CliError(f"The prompt is larger than {REQUEST_BODY_BYTES_MAX // 1024**2} MiB.")
    return piped.decode("utf-8", errors="replace")


def answer_once(client: Client, settings: Settings, messages: list[Message]) -> None:
    answer = Answer(time.monotonic())
    try:
        receive(client, settings, messages, answer)
    finally:
        _end_line(answer)
    output.note(answer.summary())


def receive(client: Client, settings: Settings, messages: list[Message], answer: Answer) -> None:
    """Stream one answer to stdout and into `answer`, which keeps what came even if this raises."""
    with client.stream(_PATH, settings.body(messages, stream=True), headers=settings.headers()) as stream:
        names = ("node", "region", "attempts", "match-id")
        answer.headers = {name: stream.headers.get(f"x-sparewatt-{name}", "") for name in names}
        for data in stream.events():
            chunk = decode(data, Chunk)
            if chunk.error is not None:
                raise _stream_error(client, chunk.error)
            _write(answer.add(chunk, now_s=time.monotonic()))


def _stream_error(client: Client, told: ErrorObject) -> CliError:
    """An error within an answer that had begun: whatever its code, the command failed."""
    error = client.error(told, status=200)
    error.exit_code = ExitCode.FAILURE
    return error


def _write(text: str) -> None:
    if text:
        sys.stdout.write(output.clean_text(text) if output.on_terminal() else text)
        sys.stdout.flush()


def _end_line(answer: Answer) -> None:
    if answer.texts and not answer.text.endswith("\n"):
        _write("\n")


def converse(
    client: Client, settings: Settings, opening: list[Message], *, read_line: Callable[[str], str] = input
) -> None:
    """Ask and answer until the input ends. Every question is sent with all that was said before."""
    _enable_line_editing()
    output.note(f"You are talking to {settings.model}. Ctrl-C stops an answer, Ctrl-D leaves.")
    messages = list(opening)
    while (question := _next_question(read_line)) is not None:
        if question.strip():
            messages = _take_turn(client, settings, messages, question)


def _enable_line_editing() -> None:
    """Arrow keys and recall at the prompt, where the platform has them."""
    try:
        import readline  # noqa: F401 - importing it is what changes `input`
    except ImportError:
        return


def _next_question(read_line: Callable[[str], str]) -> str | None:
    try:
        return read_line("> ")
    except EOFError:
        print()
        return None
    except KeyboardInterrupt:
        print(file=sys.stderr)
        output.note("Ctrl-D leaves.")
        return ""


def _take_turn(client: Client, settings: Settings, messages: list[Message], question: str) -> list[Message]:
    """The conversation after this question; a question that got no answer is forgotten."""
    asked = [*messages, {"role": "user", "content": question}]
    answer = Answer(time.monotonic())
    try:
        receive(client, settings, asked, answer)
    except KeyboardInterrupt:
        _end_line(answer)
        output.note("Stopped.")
    except CliError as error:
        _end_line(answer)
        _report_and_go_on(error)
    else:
        _end_line(answer)
        output.note(answer.summary())
    return [*asked, {"role": "assistant", "content": answer.text}] if answer.texts else messages


def _report_and_go_on(error: CliError) -> None:
    """A failed answer does not end the conversation, unless every further one would fail alike."""
    if error.exit_code in {ExitCode.AUTH, ExitCode.NOT_FOUND}:
        raise error
    output.note(f"error: {error.message} {error.next_step}".rstrip())
