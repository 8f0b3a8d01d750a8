"""`sparewatt chat`: a conversation with a model on a terminal, or one question and its answer.

Only the answer goes to stdout; one line on stderr says which node answered, how fast and at which cost. Conversations
are kept in memory only and end with the command.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.message import Message

import click

from sparewatt.cli import output
from sparewatt.cli.client import ANSWER_TIMEOUT_S, ApiClient, path_of
from sparewatt.cli.completion import complete_model
from sparewatt.cli.context import network_options
from sparewatt.cli.errors import CliError, ExitCode
from sparewatt.cli.groups import examples
from sparewatt.cli.param_types import FiniteRange
from sparewatt.cli.routing import JobRouting, routing_options
from sparewatt.core.limits import REQUEST_BODY_BYTES_MAX
from sparewatt.protocol.api.inference import ChatChunk
from sparewatt.protocol.api.nodes import Node

_PATH = "/chat/completions"
_RANKING_HEADER = "X-Sparewatt-Policy"
_LEAVE = {"/exit", "/quit", "exit", "quit"}
_HELP = "/exit or /quit leaves, and so do Ctrl-D and Ctrl-C twice; Ctrl-C stops an answer. Other lines go to the model."
_NAME_TIMEOUT_S = 2.0

ChatMessage = dict[str, str]


@dataclass(frozen=True, slots=True)
class AnswerOrigin:
    """Where an answer came from, by the headers of the reply; None for each header that is missing."""

    node: str | None = None
    region: str | None = None
    attempts: int | None = None
    match_id: str | None = None

    @classmethod
    def from_headers(cls, headers: Message) -> AnswerOrigin:
        node, region, attempts, match_id = (
            headers.get(f"x-sparewatt-{name}") or None for name in ("node", "region", "attempts", "match-id")
        )
        return cls(node, region, int(attempts) if attempts and attempts.isdecimal() else None, match_id)

    def as_json(self) -> dict[str, object]:
        """What `chat --json` adds to the completion, which was not streamed and so has no first token."""
        return {
            "node": self.node,
            "region": self.region,
            "attempts": self.attempts,
            "match_id": self.match_id,
            "first_token_ms": None,
        }


@dataclass(slots=True)
class ChatAnswer:
    """An answer as it grows. It can be described at any time, complete or not."""

    sent_s: float
    texts: list[str] = field(default_factory=list)
    origin: AnswerOrigin = field(default_factory=AnswerOrigin)
    first_token_s: float | None = None
    last_token_s: float | None = None
    counted_tokens: int | None = None
    cost_usd: float | None = None
    finish_reason: str | None = None

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def tokens(self) -> int:
        """By the network's count; before the network reports it, the number of chunks."""
        return len(self.texts) if self.counted_tokens is None else self.counted_tokens

    @property
    def tokens_per_s(self) -> float | None:
        if self.first_token_s is None or self.last_token_s is None or self.last_token_s <= self.first_token_s:
            return None
        return (self.tokens - 1) / (self.last_token_s - self.first_token_s)

    def add(self, chunk: ChatChunk, *, now_s: float) -> str:
        """Add one event of the stream; returns its text."""
        if chunk.usage and chunk.usage.completion_tokens is not None:
            self.counted_tokens = chunk.usage.completion_tokens
            self.cost_usd = chunk.usage.cost
        if not chunk.choices:
            return ""
        choice = chunk.choices[0]
        self.finish_reason = choice.finish_reason or self.finish_reason
        text = choice.delta.content or ""
        if text:
            self.first_token_s = now_s if self.first_token_s is None else self.first_token_s
            self.last_token_s = now_s
            self.texts.append(text)
        return text

    def summary(self, *, node_name: str | None = None) -> str:
        """Which node answered, how fast, and the id of the match, with which 'match explain' says why."""
        node, attempts = self.origin.node, self.origin.attempts or 1
        waited_ms = None if self.first_token_s is None else (self.first_token_s - self.sent_s) * 1000
        parts = [
            output.node_label(node, node_name) if node else "unknown node",
            self.origin.region or "unknown region",
            f"first token {output.format_ms(waited_ms)}",
            f"{output.format_rate(self.tokens_per_s)} tokens/s",
            f"{self.tokens} tokens",
            *([] if self.cost_usd is None else [output.format_usd(self.cost_usd)]),
            *([f"{attempts} attempts"] if attempts > 1 else []),
            *(["cut at the token limit"] if self.finish_reason == "length" else []),
            self.origin.match_id or "no match id",
        ]
        return " · ".join(parts)


class NodeNameCache:
    """The names of the nodes that answered; each is requested once."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._names: dict[str, str | None] = {}

    def name_of(self, node: str) -> str | None:
        """None if the gateway does not answer in time: the answer is printed without it."""
        if node not in self._names:
            try:
                reply = self._client.get(path_of("nodes", node), timeout_s=_NAME_TIMEOUT_S)
                self._names[node] = reply.parse(Node).name
            except CliError:
                self._names[node] = None
        return self._names[node]


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """The options of a conversation, sent with every question."""

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
@examples(
    "sparewatt chat smollm2-135m",
    'sparewatt chat smollm2-135m "Name three rivers."',
    'cat notes.txt | sparewatt chat smollm2-135m --system "Summarise."',
    "sparewatt chat smollm2-135m --policy policy.yaml",
)
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
    conversation = [*messages, {"role": "user", "content": question}]
    answer = ChatAnswer(time.monotonic())
    try:
        stream_answer(client, settings, conversation, answer)
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
    return [*conversation, {"role": "assistant", "content": answer.text}] if answer.texts else messages
