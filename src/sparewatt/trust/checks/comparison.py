"""Two answers to the same request at temperature 0, compared piece by piece. Pure.

A gateway has no model's tokenizer, so an answer is cut into pieces of about a token: words with the space before them,
long words in parts, punctuation. Two honest nodes write the same until rounding tips one close choice of a token; from
there on the texts have nothing in common. So the position of the first difference says it all, and what comes after it
says nothing. A node with another model, or none, differs within the first few pieces.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

PIECES_MAX = 4_096
"""Of an answer that is compared: what follows would not change a verdict."""
_PIECE = re.compile(r"\s?\w{1,8}|\s?[^\w\s]{1,4}|\s+", re.UNICODE)


def pieces_of(text: str) -> tuple[str, ...]:
    """Together they are the text, up to PIECES_MAX of them."""
    found: list[str] = []
    for match in _PIECE.finditer(text):
        found.append(match[0])
        if len(found) == PIECES_MAX:
            break
    return tuple(found)


def digest_of(pieces: Sequence[str]) -> str:
    """Names an answer without its text."""
    return hashlib.sha256("\x1f".join(pieces).encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Comparison:
    """How far two answers agree."""

    agreed: int
    """Pieces before the first difference, or all."""
    differs: bool

    @property
    def position(self) -> int | None:
        """Of the first difference, counted from 0; None if there is none."""
        return self.agreed if self.differs else None


def compare(first: Sequence[str], second: Sequence[str]) -> Comparison:
    """One that is the beginning of the other differs where it ends: who stops early has not done the work."""
    agreed = next((at for at, (one, other) in enumerate(zip(first, second, strict=False)) if one != other), None)
    if agreed is None:
        agreed = min(len(first), len(second))
    return Comparison(agreed, agreed < max(len(first), len(second)))
