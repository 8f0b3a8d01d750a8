"""How long a job would wait for its first token here, by the node's own count, and how busy it is with reading.

The gateway's picture is a heartbeat old; this one is not. Pure: time comes in by argument, and nothing is sent.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

from sparewatt.node.measure import SHORT_PROMPT_TOKENS
from sparewatt.protocol.node import Speed

OUTPUT_TOKENS_DEFAULT = 256
"""The length of an answer until some were seen."""
WRITING_EWMA = 0.2
NEARLY_OVER = 0.125
"""What is left, of a usual answer's time, of one that has taken longer than usual."""
SHARE_OVER_S = 15.0


@dataclass(slots=True, eq=False)
class Turn:
    """One job of ours at the model server, in arrival order: seconds its prompt and its answer should take."""

    prompt_s: float
    writing_s: float
    began_s: float
    first_token_s: float | None = None
    """When its first token came."""


def reading_s(speed: Speed, prompt_tokens: int) -> float:
    """Seconds to the first token on a node that does nothing else, by the same rule as the gateway's."""
    short_s = max(speed.ttft_s, SHORT_PROMPT_TOKENS / speed.prefill_tps)
    return short_s + max(0.0, prompt_tokens - SHORT_PROMPT_TOKENS) / speed.prefill_tps


def first_token_s(alone_s: float, new: Turn, turns: Sequence[Turn], *, slots: int, foreign: int) -> float:
    """Seconds until a job that comes now would say its first word, if alone on the node it took `alone_s`."""
    strangers = min(foreign, slots)
    running, waiting = turns[: slots - strangers], turns[slots - strangers :]
    now_s = new.began_s
    unread_s = _unread_s(running, now_s)
    together = 2.0 if turns or strangers else 1.0  # reading and writing halve each other
    if len(running) + strangers < slots:
        return (unread_s + alone_s) * together
    free_in_s = [_left_s(turn, unread_s, now_s) for turn in running] + [new.writing_s / 2] * strangers
    heapq.heapify(free_in_s)
    for turn in waiting:
        heapq.heapreplace(free_in_s, free_in_s[0] + turn.prompt_s + turn.writing_s)
    return free_in_s[0] + alone_s * together


def _unread_s(running: Sequence[Turn], now_s: float) -> float:
    """Reading still to be done, less what was done since the oldest of these prompts came."""
    unread = [turn for turn in running if turn.first_token_s is None]
    if not unread:
        return 0.0
    return max(0.0, sum(turn.prompt_s for turn in unread) - (now_s - unread[0].began_s))


def _left_s(turn: Turn, unread_s: float, now_s: float) -> float:
    if turn.first_token_s is None:
        return unread_s + turn.writing_s
    return max(NEARLY_OVER * turn.writing_s, turn.writing_s - (now_s - turn.first_token_s))


class Writing:
    """How long answers of each model usually take here, first token to last, in the company they have."""

    def __init__(self) -> None:
        self._typical_s: dict[str, float] = {}

    def typical_s(self, model: str, speed: Speed) -> float:
        return self._typical_s.get(model, OUTPUT_TOKENS_DEFAULT / speed.decode_tps)

    def note(self, model: str, took_s: float) -> None:
        before_s = self._typical_s.get(model, took_s)
        self._typical_s[model] = before_s + WRITING_EWMA * (took_s - before_s)


class ReadingShare:
    """The share of the last seconds during which a prompt was being read; what is older fades."""

    def __init__(self) -> None:
        self._share = 0.0
        self._is_reading = False
        self._noted_s: float | None = None

    def note(self, *, is_reading: bool, now_s: float) -> None:
        """From now on a prompt is being read, or none is."""
        if self._noted_s is not None:
            faded = math.exp(-max(0.0, now_s - self._noted_s) / SHARE_OVER_S)
            self._share = self._share * faded + self._is_reading * (1.0 - faded)
        self._is_reading, self._noted_s = is_reading, now_s

    @property
    def value(self) -> float:
        return round(self._share, 2)
