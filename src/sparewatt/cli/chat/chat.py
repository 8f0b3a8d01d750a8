"""`sparewatt chat`: a conversation with a model on a terminal, or one question and its answer.

Only the answer goes to stdout; one line on stderr says which node answered and how fast. Conversations are kept in
memory only and end with the command.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import click

from sparewatt.cli import output
from sparewatt.cli.chat.answer import AnswerOrigin, ChatAnswer, NodeNameCache
from sparewatt.cli.client import ANSWER_TIMEOUT_S, ApiClient
from sparewatt.cli.completion import complete_model
from sparewatt.cli.context import network_options
from sparewatt.cli.errors import CliError, ExitCode
from sparewatt.cli.param_types import FiniteRange
from sparewatt.cli.routing import JobRouting, routing_options
from sparewatt.core.limits import REQUEST_BODY_BYTES_MAX
from sparewatt.protocol.api.inference import ChatChunk

_PATH = "/chat/completions"
_RANKING_HEADER = "X-Sparewatt-Policy"
_LEAVE = {"/exit", "/quit", "exit", "quit"}
_HELP = "/exit or /quit leaves, and so do Ctrl-D and Ctrl-C twice. Ctrl-C stops an answer. All else is asked."

ChatMessage = dict[str, str]


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """What is the same for every question of a conversation."""

    model: str
    max_tokens: int | None = None
    temperature: float | None = None
    routing: JobRouting = field(default_factory=JobRouting)

    def body(self, messages: list[ChatMessage], *, stream: bool) -> dict[str, object]:
        body: dict[str, object] = {"model": self.model, "messages": messages, "stream": stream, **self.routing.body}
        if stream:
            body["stream_options"] = {"include_usage": True}
        if self.max_tokens is not None:
            body["max_tokens"] = self.max_tokens
        if self.temperature is not None:
            body["temperature"] = self.temperature
        return body

    def headers(self) -> dict[str, str]:
        ranking = self.routing.ranking
        return {**self.routing.headers, **({_RANKING_HEADER: ranking} if ranking else {})}


@click.command()
@click.argument("model", shell_complete=complete_model)
@click.argument("prompt", required=False)
@click.option("--system", metavar="TEXT", help="Instructions that come before the conversation.")
@click.option("--max-tokens", type=click.IntRange(min=1), metavar="N", help="Longest answer.")
@click.option("--temperature", type=FiniteRange(0, 2), metavar="T", help="0 for the likeliest words, up to 2.")
@routing_options
@network_options
def chat(
    client: ApiClient,
    *,
    model: str,
    prompt: str | None,
    system: str | None,
    max_tokens: int | None,
    temperature: float | None,
    routing: JobRouting,
    as_json: bool,
) -> None:
    """Talk to MODEL, or ask it one PROMPT.

    Without PROMPT, a terminal opens a conversation, and a pipe is read as the prompt.

    \b
    Example:
      sparewatt chat smollm2-135m
      sparewatt chat smollm2-135m "Name three rivers."
      cat notes.txt | sparewatt chat smollm2-135m --system "Summarise."
      sparewatt chat smollm2-135m --policy policy.yaml
    """
    settings = ChatSettings(model, max_tokens, temperature, routing)
    opening = [{"role": "system", "content": system}] if system else []
    if prompt is None and is_interactive():
        if as_json:
            raise click.UsageError("--json needs a PROMPT or a pipe.")
        converse(client, settings, opening)
        return
    messages = [*opening, {"role": "user", "content": _prompt_text(prompt)}]
    if as_json:
        print_completion(client, settings, messages)
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


def print_completion(client: ApiClient, settings: ChatSettings, messages: list[ChatMessage]) -> None:
    """Print the gateway's reply, and the values of its headers as the field `sparewatt`."""
    body = settings.body(messages, stream=False)
    reply = client.post(_PATH, body, headers=settings.headers(), timeout_s=ANSWER_TIMEOUT_S)
    output.print_json(reply.parse(dict) | {"sparewatt": AnswerOrigin.from_headers(reply.headers).as_json()})


def answer_once(client: ApiClient, settings: ChatSettings, messages: list[ChatMessage]) -> None:
    answer = ChatAnswer(time.monotonic())
    try:
        stream_answer(client, settings, messages, answer)
    finally:
        _end_line(answer)
    _print_summary(answer, NodeNameCache(client))


def stream_answer(client: ApiClient, settings: ChatSettings, messages: list[ChatMessage], answer: ChatAnswer) -> None:
    """Stream one answer to stdout and into `answer`, which has what came so far also if this raises."""
    with client.stream(_PATH, settings.body(messages, stream=True), headers=settings.headers()) as stream:
        answer.origin = AnswerOrigin.from_headers(stream.headers)
        for chunk in stream.events(ChatChunk):
            if chunk.error is not None:
                error = client.build_error(chunk.error, status=200)
                error.exit_code = ExitCode.FAILURE  # whatever its code is: an answer had begun
                raise error
            _write(answer.add(chunk, now_s=time.monotonic()))


def _print_summary(answer: ChatAnswer, names: NodeNameCache) -> None:
    """Print the line below an answer. A node's name takes a request, so only a terminal gets it."""
    node = answer.origin.node
    name = names.name_of(node) if node and sys.stderr.isatty() else None
    output.note(answer.summary(node_name=name))


def _write(text: str) -> None:
    if text:
        sys.stdout.write(output.clean_text(text) if output.on_terminal() else text)
        sys.stdout.flush()


def _end_line(answer: ChatAnswer) -> None:
    if answer.texts and not answer.text.endswith("\n"):
        _write("\n")


def converse(
    client: ApiClient, settings: ChatSettings, opening: list[ChatMessage], *, read_line: Callable[[str], str] = input
) -> None:
    """Ask and answer until the input ends. Every question is sent with the whole conversation before it."""
    _enable_line_editing()
    output.note(f"You are talking to {settings.model}. Ctrl-C stops an answer, Ctrl-D leaves, /help says more.")
    messages = list(opening)
    names = NodeNameCache(client)
    for question in read_questions(read_line):
        messages = _ask_question(client, settings, messages, question, names=names)


def _enable_line_editing() -> None:
    """Arrow keys and history at the prompt, where the platform has them."""
    try:
        import readline  # noqa: F401 - importing it is what changes `input`
    except ImportError:
        return


def read_questions(read_line: Callable[[str], str]) -> Iterator[str]:
    """The typed lines, until `/exit` or the like, the end of the input, or Ctrl-C twice in a row."""
    interrupts = 0
    while interrupts < 2:
        try:
            line = read_line("> ")
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            interrupts += 1
            print(file=sys.stderr)
            if interrupts == 1:
                output.note("Ctrl-C again leaves, and so does Ctrl-D.")
            continue
        interrupts = 0
        word = line.strip().lower()
        if word in _LEAVE:
            return
        if word == "/help":
            output.note(_HELP)
        elif word:
            yield line


def _ask_question(
    client: ApiClient, settings: ChatSettings, messages: list[ChatMessage], question: str, *, names: NodeNameCache
) -> list[ChatMessage]:
    """The conversation after this question; a question without an answer is left out."""
    asked = [*messages, {"role": "user", "content": question}]
    answer = ChatAnswer(time.monotonic())
    try:
        stream_answer(client, settings, asked, answer)
    except KeyboardInterrupt:
        _end_line(answer)
        output.note("Stopped.")
    except CliError as error:
        _end_line(answer)
        if error.exit_code in {ExitCode.AUTH, ExitCode.NOT_FOUND}:  # every further question would fail, too
            raise
        output.note(f"error: {error.message} {error.next_step}".rstrip())
    else:
        _end_line(answer)
        _print_summary(answer, names)
    return [*asked, {"role": "assistant", "content": answer.text}] if answer.texts else messages
