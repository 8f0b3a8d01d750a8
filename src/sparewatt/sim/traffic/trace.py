"""One line of a trace."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TraceRequest:
    at_s: float
    input_tokens: int
    output_tokens: int
    prefix_blocks: tuple[int, ...] = ()
    """Its prompt in blocks of 512 tokens, each named after all that comes before it; empty if the trace has none."""
