"""The engine's text as a pure function: token `i` of an answer depends only on the prompt's hash and `i`.

So a test can compute the answer to any request. An answer that was cut anywhere, even inside a token, continues byte
for byte: the prompt with the text so far leads back to the same hash and the next position. HTTP, time and limits on
length are not in this module.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256

import msgspec

from sparewatt.testing.engine.requests import ContentPart, EngineMessage

ASSISTANT_MARKER = "<|assistant|>"
CHAT_TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% if not loop.last %}\n{% endif %}{% endfor %}"
    "{% if messages[-1].role != 'assistant' %}\n<|assistant|>{% endif %}"
)
NATURAL_TOKENS_MIN = 20
NATURAL_TOKENS_MAX = 200

_WORDS = (
    "river stone light under carries morning window quiet paper engine follows garden signal copper winter "
    "between harbour listens voltage summer answers yellow forest the a of and to in over with while every "
    "small large north south wire spare watt node bright slow quick turns keeps lends counts waits grows "
    "early late open shared green silver market bridge train cloud letter number question reason pattern "
    "measure careful simple always never often again before after since until along across around through "
    "Zürich café naïve señor Øresund fiancée 日本 Привет Ωmega 42 2026 x1 y2 value table field record index "
    "queue stream token prompt model engineers operators builders readers friends neighbours stations houses "
    "roofs panels batteries meters cables switches lamps"
)
_MARKS = (",", ".", ";", ":", "!", "?", ' "', '"', "…", " —", " 🙂", "\\", " (", ")", "'")
VOCABULARY: tuple[str, ...] = tuple(f" {word}" for word in _WORDS.split()) + _MARKS
"""Every token starts with a space or is a mark, and none contains `<`, `|` or `>`: no marker is ever generated."""

LABEL = re.compile(r"\[label (\w{1,40})\]")
"""In a chat: every token of the answer is this label and its position, so that a misrouted token can be seen."""

ANSWER_LENGTH = re.compile(r"\[answer (\d{1,4})\]")
"""In a chat: how many tokens the answer has, where nothing else sets its length."""

_TOKEN = re.compile(r"<\|\w+\|>| ?\w+| ?[^\w\s]|\s")
_TOKEN_START = re.compile("[" + re.escape("".join(sorted({token[0] for token in VOCABULARY}))) + "]")
_TOKENS_PER_BLOCK = 16


@dataclass(frozen=True, slots=True)
class Continuation:
    """A prompt that ends with a part of the answer to `base`: `n_tokens`, and `n_chars` of the next token."""

    base: str
    n_tokens: int
    n_chars: int


def tokenize(text: str) -> list[str]:
    """Joined again the tokens are `text`; a generated answer is split into the tokens that were generated."""
    return _TOKEN.findall(text)


def count_tokens(text: str) -> int:
    return sum(1 for _ in _TOKEN.finditer(text))


def render_chat(messages: Sequence[EngineMessage | Mapping[str, object]]) -> str:
    """The prompt of a chat. It ends with the assistant marker, and the text of a last assistant message."""
    parsed = [
        message if isinstance(message, EngineMessage) else msgspec.convert(message, EngineMessage)
        for message in messages
    ]
    prompt = "\n".join(f"<|{message.role}|>{message_text(message)}" for message in parsed)
    is_prefilled = bool(parsed) and parsed[-1].role == "assistant" and not parsed[-1].tool_calls
    return prompt if is_prefilled else f"{prompt}\n{ASSISTANT_MARKER}"


def answer_tokens(prompt: str, start: int, count: int, *, seed: int | None = None, choice: int = 0) -> list[str]:
    """Tokens `start` to `start + count` of the endless answer to `prompt`, which is not searched for a continuation."""
    digest, label = _digest(prompt, seed=seed, choice=choice), _label(prompt)
    return [_token(digest, i, label=label) for i in range(start, start + count)]


def natural_length(prompt: str, *, seed: int | None = None, choice: int = 0) -> int:
    """Tokens of the answer if no limit ends it earlier: as a chat wishes, else by its hash."""
    wish = ANSWER_LENGTH.search(prompt, 0, max(0, prompt.rfind(ASSISTANT_MARKER)))
    if wish is not None:
        return int(wish[1])
    digest = _digest(prompt, seed=seed, choice=choice)
    return NATURAL_TOKENS_MIN + int.from_bytes(digest[:4], "big") % (NATURAL_TOKENS_MAX - NATURAL_TOKENS_MIN + 1)


def continuation(prompt: str, *, seed: int | None = None, choice: int = 0) -> Continuation:
    """Split a prompt into its question and the part of the answer at its end.

    The earliest split that fits is taken. A shorter part of an answer fits wherever a longer one does, so the split is
    the same after every cut. Only text after the last assistant marker is searched.
    """
    marker_at = prompt.rfind(ASSISTANT_MARKER)
    hashed_to = marker_at + len(ASSISTANT_MARKER) if marker_at >= 0 else 0
    state = sha256(_salt(seed=seed, choice=choice) + prompt[:hashed_to].encode())
    label = _label(prompt)
    for match in _TOKEN_START.finditer(prompt, hashed_to):
        state.update(prompt[hashed_to : match.start()].encode())
        hashed_to = match.start()
        fit = _fit(prompt, at=hashed_to, digest=state.digest(), label=label)
        if fit is not None:
            return Continuation(prompt[:hashed_to], *fit)
    return Continuation(prompt, 0, 0)


def remaining_tokens(split: Continuation, count: int, *, seed: int | None = None, choice: int = 0) -> list[str]:
    """The next `count` tokens after `split`; the first is the rest of a token that was cut inside."""
    tokens = answer_tokens(split.base, split.n_tokens, count, seed=seed, choice=choice)
    return [tokens[0][split.n_chars :], *tokens[1:]] if tokens else []


def expected_text(
    prompt: str,
    *,
    max_tokens: int | None = None,
    answer_length: int | None = None,
    seed: int | None = None,
    choice: int = 0,
) -> str:
    """What an engine without faults returns for `prompt` (a raw prompt, or `render_chat` of a chat)."""
    split = continuation(prompt, seed=seed, choice=choice)
    length = natural_length(split.base, seed=seed, choice=choice) if answer_length is None else answer_length
    n_left = max(length - split.n_tokens, 0)
    count = n_left if max_tokens is None else min(n_left, max_tokens)
    return "".join(remaining_tokens(split, count, seed=seed, choice=choice))


def words(prompt: str, *, seed: int | None = None, choice: int = 0) -> Iterator[str]:
    """An endless sequence of ASCII words, by the prompt's hash; strings in JSON answers consist of them."""
    digest = _digest(prompt, seed=seed, choice=choice)
    i = 0
    while True:
        word = _token(digest, i).strip()
        i += 1
        if word.isascii() and word.isalpha():
            yield word


def message_text(message: EngineMessage) -> str:
    """What a message adds to the prompt after its role."""
    calls = "".join(f"{call.function.name}({call.function.arguments})" for call in message.tool_calls or ())
    match message.content:
        case None:
            return calls
        case str() as text:
            return text + calls
        case parts:
            return "".join(_part_text(part) for part in parts) + calls


def _part_text(part: ContentPart) -> str:
    return part.text if part.type == "text" else f"[{part.type}]"


def _salt(*, seed: int | None, choice: int) -> bytes:
    """Empty for the first choice without a seed, whose hash is the prompt's own."""
    return b"" if seed is None and choice == 0 else f"{seed}:{choice}\0".encode()


def _digest(prompt: str, *, seed: int | None, choice: int) -> bytes:
    return sha256(_salt(seed=seed, choice=choice) + prompt.encode()).digest()


def _fit(prompt: str, *, at: int, digest: bytes, label: str) -> tuple[int, int] | None:
    """Tokens and further characters of the answer in `prompt` from `at` to its end; None if other text is there."""
    n_tokens = 0
    while at < len(prompt):
        token = _token(digest, n_tokens, label=label)
        if not prompt.startswith(token, at):
            rest = prompt[at : at + len(token)]
            return (n_tokens, len(rest)) if token.startswith(rest) else None
        at += len(token)
        n_tokens += 1
    return n_tokens, 0


def _label(prompt: str) -> str:
    """The label of a chat. A raw prompt has none, since it may be half an answer."""
    found = LABEL.search(prompt, 0, max(0, prompt.rfind(ASSISTANT_MARKER)))
    return found[1] if found else ""


def _token(digest: bytes, i: int, *, label: str = "") -> str:
    if label:
        return f" {label}_{i}"
    at = 2 * (i % _TOKENS_PER_BLOCK)
    block = _block(digest, i // _TOKENS_PER_BLOCK)
    return VOCABULARY[int.from_bytes(block[at : at + 2], "big") % len(VOCABULARY)]


@lru_cache(maxsize=4096)
def _block(digest: bytes, number: int) -> bytes:
    return sha256(digest + number.to_bytes(8, "big")).digest()
