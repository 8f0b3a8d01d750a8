"""Counts in sentences for people."""

from __future__ import annotations


def pluralize(n: int, noun: str) -> str:
    """`1 node`, `1,200 nodes`; for nouns that take an s."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"
