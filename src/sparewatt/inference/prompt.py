"""What the gateway derives from a prompt's raw bytes: an estimate of its tokens, and hashes of its prefix.

The size is an estimate: a tokenizer on the request path would cost more than the match. For prefix-cache affinity a
prompt is a chain of blocks; the hash of a block covers everything before it as well, so two prompts share a hash only
if they share all text up to there. The first hash is keyed by a secret of this process and by the account: a hash tells
nothing about other accounts' prompts. The rest of the chain is Python's own keyed hash of bytes (SipHash), at a fifth
of BLAKE2's cost: a collision would mislead the account that made it, and no other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence

import msgspec

from sparewatt.core.limits import KIB
from sparewatt.inference.text_units import PromptUnits, units_of

PREFIX_HOLDERS_MAX = 8
"""Nodes that a match prices for what they hold of a prompt, and that are remembered for one block of it."""

BYTES_PER_TOKEN = 4
"""English prose and code lie near 4. The estimate steers the match; the bill goes by the node's count and `units`."""

BYTES_PER_TOKEN_AT_MOST = 16
"""No tokenizer in use packs more than this into its average token, so bytes / 16 is a safe lower bound."""

MEDIA_TOKENS = 1_000
"""An image or sound stands for about this many, however long its data URI is."""

PREFIX_BLOCK_BYTES = 2 * KIB
"""Prompts are compared in blocks of this size, about 512 tokens: a node reads less faster than it is looked up."""

PREFIX_BLOCKS_PER_PROMPT_MAX = 128
"""Blocks of one prompt that are hashed: 256 KiB, some 65,000 tokens, in under 0.2 ms."""

BLOCK_TOKENS = PREFIX_BLOCK_BYTES // BYTES_PER_TOKEN
HASH_BYTES = 8

_MEDIA = (b'"image_url"', b'"input_audio"', b'"file"')


class PromptSize(msgspec.Struct, frozen=True):
    tokens: int
    tokens_floor: int
    units: PromptUnits | None = None
    """What the model reads, by which a node's own count is checked; None if it is not known."""


def size_of(messages: Iterable[bytes], *, is_text: bool = False) -> PromptSize:
    """Estimate and lower bound for messages given as raw JSON; `is_text` if none of them holds anything else."""
    tokens = floor = 0
    for message in messages:
        n_bytes = len(message)
        if not is_text and has_media(message):
            tokens += MEDIA_TOKENS
        else:
            tokens += n_bytes // BYTES_PER_TOKEN
            floor += n_bytes // BYTES_PER_TOKEN_AT_MOST
    return PromptSize(max(1, tokens), floor)


class _TextPart(msgspec.Struct, frozen=True):
    type: str = ""
    text: str = ""


class _Message(msgspec.Struct, frozen=True):
    content: str | list[_TextPart] | None = None
    tool_calls: msgspec.Raw = msgspec.Raw(b"")


_message_decoder = msgspec.json.Decoder(_Message)


def chat_units(messages: Sequence[bytes], *, tools: bytes = b"") -> PromptUnits:
    """What a chat template makes a prompt of: the messages' texts, and tools as the JSON that they are given as."""
    texts: list[str] = []
    media = 0
    for message in messages:
        try:
            read = _message_decoder.decode(message)
        except (msgspec.DecodeError, UnicodeDecodeError):
            texts.append(message.decode(errors="replace"))  # the model server has its own view of it
            continue
        parts = read.content if isinstance(read.content, list) else ()
        texts.append(read.content if isinstance(read.content, str) else "\n".join(part.text for part in parts))
        texts.append(bytes(read.tool_calls).decode(errors="replace"))
        media += sum(part.type != "text" for part in parts)
    text = units_of("\n".join(filter(None, texts)))
    if tools:
        text += units_of(tools.decode(errors="replace"))
    return PromptUnits(text, messages=len(messages), has_tools=bool(tools), media=media)


def size_of_texts(strings: Iterable[str], id_counts: Iterable[int]) -> PromptSize:
    """Of prompts without messages: texts are estimated, token ids are counted."""
    counted, texts = list(id_counts), list(strings)
    sizes = [len(text.encode()) for text in texts]
    tokens = sum(counted) + sum(size // BYTES_PER_TOKEN for size in sizes)
    # Each text has the context to itself: the longest must fit, not all together.
    floor = max([*counted, *(size // BYTES_PER_TOKEN_AT_MOST for size in sizes)], default=0)
    units = PromptUnits(units_of("\n".join(texts)), messages=len(texts) + len(counted), is_chat=False, ids=sum(counted))
    return PromptSize(max(1, tokens), floor, units)


def has_media(message: bytes) -> bool:
    """Whether a raw message holds an image, a sound or a file, whose bytes say nothing about its tokens."""
    image, sound, file = _MEDIA
    return image in message or sound in message or file in message


def prefix_hashes(
    messages: Collection[bytes], *, model: str, account: str, secret: bytes, is_text: bool = False
) -> tuple[int, ...]:
    """The hashes of a prompt given as raw JSON messages, up to the first that holds an image or a sound.

    `is_text` if none does.
    """
    if sum(map(len, messages)) < PREFIX_BLOCK_BYTES:  # less than one block
        return ()
    key = hashlib.blake2b(f"{account}\n{model}\n".encode(), key=secret, digest_size=HASH_BYTES)
    text, name = _beginning(messages, is_text=is_text), int.from_bytes(key.digest(), "big")
    found = []
    for first in range(0, len(text) - PREFIX_BLOCK_BYTES + 1, PREFIX_BLOCK_BYTES):
        name = hash((name, text[first : first + PREFIX_BLOCK_BYTES]))
        found.append(name)
    return tuple(found)


def _beginning(messages: Iterable[bytes], *, is_text: bool) -> bytes:
    """The part of the prompt that is hashed."""
    room, pieces = PREFIX_BLOCK_BYTES * PREFIX_BLOCKS_PER_PROMPT_MAX, []
    for message in messages:
        if room <= 0 or (not is_text and has_media(message)):
            break
        pieces.append(message[:room])
        room -= len(pieces[-1])
    return b"".join(pieces)
