"""What of a text a reader can see, counted by script: the units by which its tokens are predicted. Pure.

Tokenizers split text at the borders of words, digits, punctuation and scripts, and each has its own price for each of
them. So a text is reduced to a few counts, and how many tokens of a model one of each takes is learned
(`metering/token_rates.py`). What a reader cannot see counts nothing: control and zero-width characters, and whitespace
beyond the first of a run. Joiners and variation selectors count where emoji and scripts need them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from sparewatt.core.limits import KIB

SAMPLED_CHARS_MIN = 64 * KIB
"""A longer text is counted by three samples of it: else a megabyte would hold up the event loop for milliseconds."""
_SAMPLE_CHARS = 16 * KIB
PUNCTUATION_RUN = 8
"""Every tokenizer has tokens for long runs of punctuation: eight in a row count as two."""
MARKS_PER_RUN_MAX = 2
"""Combining marks on one letter: no orthography stacks more than two of these."""
ENGLISH_SHARE = 1 / 16
"""Of English prose an eighth of the words are `the`, `of`, `and`, `to` or `is`; of other texts, hardly any."""
TELLING_WORDS_MIN = 16
"""Fewer words do not tell their language; most are English."""
CODE_PUNCTUATION, CODE_SIGNS_MIN = 0.5, 3
"""Code and JSON have a sign of punctuation for every second word, prose one for eight."""


class TextUnits(msgspec.Struct, frozen=True, gc=False):
    """How much of each kind a text has. Latin words stand under one of three kinds of text, which differ most."""

    english_words: int = 0
    english_letters: int = 0
    code_words: int = 0
    code_letters: int = 0
    """Of text with much punctuation: program code, JSON, tables."""
    words: int = 0
    letters: int = 0
    """Of texts in other languages."""
    accents: int = 0
    cjk: int = 0
    """Chinese and Japanese characters."""
    two_byte: int = 0
    """Letters of two bytes in UTF-8: Greek, Cyrillic, Hebrew, Arabic and their neighbours."""
    three_byte: int = 0
    """Letters of three: Hangul, and the scripts of South and South-East Asia."""
    symbols: int = 0
    """Emoji and other symbols beyond ASCII."""
    digits: int = 0
    punctuation: int = 0
    """And runs of whitespace that are more than one space."""

    def __add__(self, other: TextUnits) -> TextUnits:
        if self is NOTHING:
            return other
        mine, others = msgspec.structs.astuple(self), msgspec.structs.astuple(other)
        return TextUnits(*map(int.__add__, mine, others))

    def scaled(self, factor: float) -> TextUnits:
        return TextUnits(*(round(count * factor) for count in msgspec.structs.astuple(self)))


NOTHING = TextUnits()
Vector = npt.NDArray[np.float64]


class PromptUnits(msgspec.Struct, frozen=True, gc=False):
    """What a model reads for a request."""

    text: TextUnits = NOTHING
    messages: int = 0
    """Or texts, where there is no chat."""
    is_chat: bool = True
    has_tools: bool = False
    media: int = 0
    ids: int = 0
    """Tokens that came as such."""

    def vector(self) -> Vector:
        return _vector(float(self.is_chat), self.text, self.has_tools, self.messages, self.media, self.ids)


class CompletionUnits(msgspec.Struct, frozen=True, gc=False):
    """What a client can read of an answer."""

    text: TextUnits = NOTHING
    choices: int = 1
    tool_calls: int = 0

    @property
    def is_empty(self) -> bool:
        return self.text == NOTHING and not self.tool_calls

    def vector(self) -> Vector:
        return _vector(float(self.choices), self.text, self.tool_calls, 0, 0, 0)


def _vector(base: float, text: TextUnits, calls: float, *others: int) -> Vector:
    return np.array([base, *msgspec.structs.astuple(text), calls, *others], dtype=np.float64)


_text_decoder = msgspec.json.Decoder(str)

# Kinds of characters, each a byte: a text becomes a string of these, in which C code can count.
_RANGES: Sequence[tuple[int, int, str]] = (
    (0x00, 0x20, "x"),
    (0x09, 0x09, " "),
    (0x0A, 0x0D, "n"),
    (0x20, 0x20, " "),
    (0x21, 0x7E, "."),
    (0x30, 0x39, "0"),
    (0x41, 0x5A, "A"),
    (0x61, 0x7A, "a"),
    (0x7F, 0x9F, "x"),
    (0xA0, 0xA0, " "),
    (0xA1, 0xBF, "s"),
    (0xAD, 0xAD, "x"),
    (0xC0, 0x24F, "l"),
    (0x250, 0x2FF, "t"),
    (0x300, 0x36F, "m"),
    (0x34F, 0x34F, "x"),
    (0x370, 0x7FF, "t"),
    (0x61C, 0x61C, "x"),
    (0x800, 0x1FFF, "h"),
    (0x115F, 0x1160, "x"),
    (0x17B4, 0x17B5, "x"),
    (0x180B, 0x180F, "x"),
    (0x1AB0, 0x1AFF, "m"),
    (0x1DC0, 0x1DFF, "m"),
    (0x1E00, 0x1EFF, "l"),
    (0x2000, 0x2BFF, "s"),
    (0x2000, 0x200A, " "),
    (0x200B, 0x200F, "x"),
    (0x200C, 0x200D, "v"),
    (0x2028, 0x2029, "n"),
    (0x202A, 0x202E, "x"),
    (0x202F, 0x202F, " "),
    (0x205F, 0x205F, " "),
    (0x2060, 0x206F, "x"),
    (0x20D0, 0x20FF, "m"),
    (0x2800, 0x2800, "x"),
    (0x2C00, 0x2E7F, "h"),
    (0x2E80, 0xA4CF, "c"),
    (0x3000, 0x3000, " "),
    (0x3164, 0x3164, "x"),
    (0xA4D0, 0xDFFF, "h"),
    (0xE000, 0xF8FF, "s"),
    (0xF900, 0xFAFF, "c"),
    (0xFB00, 0xFDFF, "h"),
    (0xFE00, 0xFE0F, "v"),
    (0xFE10, 0xFE1F, "c"),
    (0xFE20, 0xFE2F, "m"),
    (0xFE30, 0xFE4F, "c"),
    (0xFE50, 0xFEFE, "h"),
    (0xFEFF, 0xFEFF, "x"),
    (0xFF00, 0xFFEF, "c"),
    (0xFFA0, 0xFFA0, "x"),
    (0xFFF0, 0xFFFB, "x"),
    (0xFFFC, 0x1FFFF, "s"),
    (0x13430, 0x1345F, "x"),
    (0x1BCA0, 0x1BCA3, "x"),
    (0x1D173, 0x1D17A, "x"),
    (0x20000, 0x3FFFF, "c"),
    (0x40000, 0x10FFFF, "x"),
)
"""Later ones win. `x` is invisible, `v` joins or varies its neighbour, `m` is a mark on the letter before it."""


def _table() -> npt.NDArray[np.uint8]:
    kinds = np.zeros(0x110000, dtype=np.uint8)
    for first, last, kind in _RANGES:
        kinds[first : last + 1] = ord(kind)
    return kinds


_KINDS = _table()
_ASCII_KINDS = _KINDS[:256].tobytes()
_LETTER_KINDS = bytes(ord("a") if chr(byte) in "aAl" else ord(" ") for byte in range(256))
_NOT_LETTERS = bytes(byte for byte in range(256) if chr(byte) not in "aAl")
_JOINED = re.compile(rb"(?<=[smth])v|(?<=0)v(?=m)")
_MARKS = re.compile(rb"(?<=[aAlthc])m+")
_SPACE_KINDS = bytes(byte if chr(byte) in " n" else ord("x") for byte in range(256))
_SPACE_ALONE = bytes(ord(" ") if chr(byte) in " n" else ord("x") for byte in range(256))
_MIXED_WORD = re.compile(rb"(?:[aAl]+t|t+[aAl])[aAlt]*")
"""Letters of two scripts in one word are look-alikes."""


def units_of(text: str) -> TextUnits:
    """What a reader can see of this text. A very long one is sampled."""
    if len(text) < SAMPLED_CHARS_MIN:
        return _units_of(text)
    middle = (len(text) - _SAMPLE_CHARS) // 2
    samples = (text[:_SAMPLE_CHARS], text[middle : middle + _SAMPLE_CHARS], text[-_SAMPLE_CHARS:])
    total = _units_of(samples[0]) + _units_of(samples[1]) + _units_of(samples[2])
    return total.scaled(len(text) / (3 * _SAMPLE_CHARS))


def units_of_json(inside: bytes | bytearray) -> TextUnits:
    """The same of a text that is given as the inside of a JSON string. One that no reader could decode has nothing."""
    try:
        return units_of(_text_decoder.decode(b'"' + inside + b'"')) if inside else NOTHING
    except (msgspec.DecodeError, UnicodeDecodeError):
        return NOTHING


def _units_of(text: str) -> TextUnits:
    if text.isascii():
        raw = text.encode()
        kinds = raw.translate(_ASCII_KINDS, _CONTROLS)
    else:
        raw = text.encode(errors="replace")
        points = np.frombuffer(text.encode("utf-32-le", errors="replace"), dtype=np.uint32)
        kinds = _KINDS[points].tobytes().translate(None, b"x")
    spread = marks = joined = 0
    if not text.isascii():
        joined = len(_JOINED.findall(kinds))
        marks = sum(min(len(run), MARKS_PER_RUN_MAX) for run in _MARKS.findall(kinds))
        kinds = kinds.translate(None, b"mv")
        kinds = _MIXED_WORD.sub(lambda word: b"a" * len(word[0]), kinds)
        spread = kinds.count(b"l")
    punctuation = _punctuation(kinds)
    return TextUnits(
        *_of_words(raw, kinds, punctuation),
        accents=spread + marks,
        cjk=kinds.count(b"c"),
        two_byte=kinds.count(b"t"),
        three_byte=kinds.count(b"h"),
        symbols=kinds.count(b"s") + joined,
        digits=kinds.count(b"0"),
        punctuation=punctuation + _space_runs(kinds),
    )


_CONTROLS = bytes(byte for byte in range(128) if _ASCII_KINDS[byte] == ord("x"))


def _of_words(raw: bytes, kinds: bytes, punctuation: int) -> tuple[int, int, int, int, int, int]:
    """Words and their letters, by the kind of text. Each part of a name like `camelCase` is a word."""
    words = (b" " + kinds.translate(_LETTER_KINDS)).count(b" a") + kinds.count(b"aA")
    letters = len(kinds.translate(None, _NOT_LETTERS))
    if punctuation >= max(CODE_SIGNS_MIN, CODE_PUNCTUATION * words):
        return 0, 0, words, letters, 0, 0
    if words < TELLING_WORDS_MIN or _is_english(raw, words):
        return words, letters, 0, 0, 0, 0
    return 0, 0, 0, 0, words, letters


def _is_english(raw: bytes, words: int) -> bool:
    common = raw.count(b" the ") + raw.count(b" of ") + raw.count(b" and ") + raw.count(b" to ") + raw.count(b" is ")
    return common >= ENGLISH_SHARE * words


def _space_runs(kinds: bytes) -> int:
    """Whitespace that is more than one space, each run once."""
    if b"n" not in kinds and b"  " not in kinds:
        return 0
    return (b"x" + kinds.translate(_SPACE_ALONE)).count(b"x  ") + kinds.translate(_SPACE_KINDS).count(b"xnx")


def _punctuation(kinds: bytes) -> int:
    long_run = b"." * PUNCTUATION_RUN
    return (kinds.replace(long_run, b"..") if long_run in kinds else kinds).count(b".")
