"""Counts of what happened since they were last stored: of the network, of each model, node and error.

Jobs are noted as they end, replies that were errors as they are sent; who is up is looked at by the clock.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from http import HTTPStatus
from statistics import median

from sparewatt.core.errors import NoEligibleNode
from sparewatt.core.ids import NodeId
from sparewatt.core.limits import HISTORY_NAMES_MAX
from sparewatt.gateway.feeds.public import BYTES_PER_GB, vram_gb_of
from sparewatt.gateway.history.buckets import SPEED_UNIT, bucket_of, empty
from sparewatt.inference.dispatch.model import AttemptRecord, MatchRecord, Outcome
from sparewatt.inference.matcher.model import NodeRow
from sparewatt.store.history import Figures, Kind

NETWORK = ""
RECENT_MAX = 500
RECENT_S = 300.0
NO_BUCKET = -1
"""Of a time that nobody saw."""
GONE_S = 7 * 24 * 3600.0
"""A node that was away for longer has left: its days are not counted as down any more."""
_DONE, _CANCELLED = Outcome.DONE, Outcome.CANCELLED
_FAILURES = (Outcome.FAILED, Outcome.TIMED_OUT)


class Tally:
    def __init__(self) -> None:
        self._counted: dict[tuple[Kind, str], Figures] = {}
        self._recent: deque[tuple[float, float]] = deque(maxlen=RECENT_MAX)
        self.errors: Counter[str] = Counter()
        """By code, since the start. Codes are our own words, and few."""

    def note_job(self, record: MatchRecord, *, now_s: float) -> None:
        """A job is over. What its client asked wrongly, or took back, is nobody's failure."""
        tokens = 0
        for attempt in record.attempts:
            tokens += attempt.tokens
            self._note_attempt(attempt)
        first_ms = record.first_token_ms
        first = speed = NO_BUCKET
        if first_ms is not None:
            first, speed = _buckets_of(record, first_ms, tokens)
            self._recent.append((now_s, first_ms))
        _add_job(self._at("network", NETWORK), record, tokens, first=first, speed=speed)
        if record.attempts:
            _add_job(self._at("model", record.decision.job.model), record, tokens, first=first, speed=speed)
        if record.broke is not None:
            self.note_error(record.broke)

    def _note_attempt(self, attempt: AttemptRecord) -> None:
        figures = self._at("node", attempt.node_id)
        if figures is not None:
            figures.jobs += 1
            figures.tokens += attempt.tokens
            if attempt.outcome is not _DONE:
                figures.failed += attempt.outcome in _FAILURES

    def note_error(self, code: str) -> None:
        """A request for an answer got this error instead."""
        self.errors[code] += 1
        figures = self._at("error", code)
        if figures is not None:
            figures.jobs += 1

    def note_time(
        self,
        rows: Iterable[NodeRow],
        *,
        passed_s: float,
        unix_s: float,
        is_elsewhere: Callable[[NodeId], bool] = lambda _: False,
    ) -> None:
        """Who was there in the last `passed_s` seconds, of those who were there in the last days.

        `is_elsewhere`: whether another process of this gateway has a link to a node.
        """
        network = self._counted.setdefault(("network", NETWORK), Figures())
        network.nodes = network.gpus = network.vram_bytes = 0
        known: set[str] = set()
        warm: set[str] = set()
        for row in rows:
            is_there = row.connected or is_elsewhere(row.id)
            if not is_there and unix_s - (row.last_seen_unix_s or 0.0) > GONE_S:
                continue
            known.update(row.models)
            key: tuple[Kind, str] = ("node", row.id)
            node = self._counted.get(key)
            if node is None:
                node = self._counted[key] = Figures()
            node.known_s += passed_s
            if is_there:
                node.up_s += passed_s
                _count_in(network, row)
                warm.update([model.id for model in row.models.values() if model.state == "warm"])
        self._note_up(network, passed_s=passed_s, is_up=bool(warm))
        for model in known:
            self._note_up(self._at("model", model), passed_s=passed_s, is_up=model in warm)

    def _note_up(self, figures: Figures | None, *, passed_s: float, is_up: bool) -> None:
        if figures is not None:
            figures.known_s += passed_s
            figures.up_s += passed_s if is_up else 0.0

    def take(self, kinds: Iterable[Kind]) -> dict[tuple[Kind, str], Figures]:
        """What was counted of these kinds; from now on it is counted anew."""
        wanted = set(kinds)
        taken = {key: figures for key, figures in self._counted.items() if key[0] in wanted}
        self._counted = {key: figures for key, figures in self._counted.items() if key[0] not in wanted}
        return taken

    def give_back(self, taken: dict[tuple[Kind, str], Figures]) -> None:
        """It could not be stored."""
        for key, figures in taken.items():
            known = self._counted.get(key)
            if known is None:
                self._counted[key] = figures
            else:
                known.add(figures)

    def first_tokens(self, *, now_s: float) -> tuple[float | None, int]:
        """The median of the last minutes, and of how many."""
        while self._recent and now_s - self._recent[0][0] > RECENT_S:
            self._recent.popleft()
        return round(median(ms for _, ms in self._recent), 1) if self._recent else None, len(self._recent)

    def _at(self, kind: Kind, name: str) -> Figures | None:
        """None where there are too many names already."""
        found = self._counted.get((kind, name))
        if found is None and (kind == "node" or len(self._counted) < HISTORY_NAMES_MAX + self._nodes()):
            found = self._counted[kind, name] = Figures()
        return found

    def _nodes(self) -> int:
        return sum(kind == "node" for kind, _ in self._counted) if len(self._counted) >= HISTORY_NAMES_MAX else 0


def _count_in(network: Figures, row: NodeRow) -> None:
    network.nodes += 1
    network.gpus += row.specs.gpu_count
    network.vram_bytes += vram_gb_of(row) * BYTES_PER_GB  # as strangers see it: these lines are public


def is_our_failure(record: MatchRecord) -> bool:
    """Not one where the request itself was at fault, or its own policy let nobody through."""
    at_fault = record.error_status is not None and record.error_status < HTTPStatus.INTERNAL_SERVER_ERROR
    return record.outcome in _FAILURES and not at_fault and not _is_ruled_out(record)


def _is_ruled_out(record: MatchRecord) -> bool:
    """There were nodes, and the asker would have none of them. Where none has the memory, it is the network's lack."""
    return record.error_code == NoEligibleNode.code and any(record.decision.barred.values())


def _buckets_of(record: MatchRecord, first_ms: float, tokens: int) -> tuple[int, int]:
    """Of the first token, and of how fast the others came."""
    took_s = ((record.attempts[-1].ended_ms or 0.0) - first_ms) / 1000
    has_speed = tokens > 1 and took_s > 0
    return bucket_of(first_ms), bucket_of((tokens - 1) / took_s / SPEED_UNIT) if has_speed else NO_BUCKET


def _add_job(figures: Figures | None, record: MatchRecord, tokens: int, *, first: int, speed: int) -> None:
    if figures is None:
        return
    figures.jobs += 1
    figures.tokens += tokens
    if record.outcome is not _DONE:
        figures.failed += is_our_failure(record)
        figures.cancelled += record.outcome is _CANCELLED
    if first != NO_BUCKET:
        figures.first_token = figures.first_token or empty()
        figures.first_token[first] += 1
    if speed != NO_BUCKET:
        figures.speed = figures.speed or empty()
        figures.speed[speed] += 1
