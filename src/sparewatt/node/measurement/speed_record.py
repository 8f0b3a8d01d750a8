"""What is kept of a model's measurements: the last runs, the curve through the best of them, and the price's basis.

Other load on a machine can only make it look slower, so of the last few runs the fastest sample of each kind counts. A
price is quoted for an hour at least, and never by a run during which the machine was busy otherwise. Pure, but for
`SpeedFile`, which saves records, so that a restart neither measures again nor changes a price.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Generic, TypeVar

import msgspec
from msgspec import Meta

from sparewatt.core.log import Logger
from sparewatt.node.measurement.speed_fit import SpeedSamples, fit_speed
from sparewatt.protocol.link.node_report import PriceBasis, Speed
from sparewatt.protocol.link.reference_load import reference_basis

_log = Logger("sparewatt.node")
RUNS_MAX = 3
"""So a machine that became slower is known as such after three runs."""
QUOTE_S = 3600.0
REFUTES_FROM = 3.0
"""From so many times its expected speed on, the expectation is not about this machine."""
QUOTE_CHANGE_MIN = 0.1
"""A smaller change is noise, and no reason for another price."""
_T = TypeVar("_T")


class SpeedRecord(msgspec.Struct, frozen=True):
    """One model. `quoted_at` is 0 for a price that is only good until a complete run, seconds later as a rule."""

    speed: Speed
    runs: Annotated[tuple[SpeedSamples, ...], Meta(min_length=1, max_length=RUNS_MAX)]
    """Latest last."""
    basis: PriceBasis
    quoted_at: float = 0.0
    """Unix seconds."""
    is_complete: bool = False
    is_disturbed: bool = False
    """The machine was busy otherwise: good enough to serve with, not for a price."""

    def wants_more(self) -> bool:
        return self.is_disturbed or not self.is_complete


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement, as far as it came."""

    samples: SpeedSamples
    is_complete: bool = False
    is_disturbed: bool = False
    is_continued: bool = False
    """Whether it extends the latest run."""
    forgets: bool = False
    """Whether earlier runs no longer count: jobs have shown that they are wrong."""


def updated(
    before: SpeedRecord | None, run: Run, *, slots: int, expected: PriceBasis | None, now_unix_s: float
) -> SpeedRecord:
    """The record after one more run. `expected`: by what hardware this is, for a price without a quiet moment."""
    if before is not None and run.is_disturbed and not before.is_disturbed:
        return before
    runs = (*_kept_runs(before, run), run.samples)[-RUNS_MAX:]
    speed = fit_speed(best_samples(runs))
    basis, quoted_at = _quote(before, run, reference_basis(speed, slots=slots), expected, now_unix_s)
    is_complete = run.is_complete or (before is not None and before.is_complete and not run.is_disturbed)
    return SpeedRecord(speed, runs, basis, quoted_at, is_complete=is_complete, is_disturbed=run.is_disturbed)


def _kept_runs(before: SpeedRecord | None, run: Run) -> Sequence[SpeedSamples]:
    if before is None or run.forgets or before.is_disturbed:
        return ()
    return before.runs[:-1] if run.is_continued else before.runs


def _quote(
    before: SpeedRecord | None, run: Run, basis: PriceBasis, expected: PriceBasis | None, now_unix_s: float
) -> tuple[PriceBasis, float]:
    if before is not None and before.quoted_at:
        is_young = abs(now_unix_s - before.quoted_at) < QUOTE_S
        if is_young or not run.is_complete or not _differs(before.basis, basis):
            return before.basis, before.quoted_at
    if run.is_disturbed:
        known = before.basis if before is not None else expected
        return (basis if known is None or _refutes(known, basis) else known), 0.0
    return basis, now_unix_s if run.is_complete else 0.0


def _refutes(expected: PriceBasis, seen: PriceBasis) -> bool:
    """Other work can only make a machine look slower: one that is much faster than expected is no such machine."""
    pairs = ((expected.prompt_tps, seen.prompt_tps), (expected.completion_tps, seen.completion_tps))
    return any(now > REFUTES_FROM * before for before, now in pairs)


def _differs(quoted: PriceBasis, basis: PriceBasis) -> bool:
    pairs = ((quoted.prompt_tps, basis.prompt_tps), (quoted.completion_tps, basis.completion_tps))
    return any(abs(now / before - 1) > QUOTE_CHANGE_MIN for before, now in pairs)


def best_samples(runs: Sequence[SpeedSamples]) -> SpeedSamples:
    """The fastest of each kind: prompts of about one length, answers of one batch size and about one context."""
    prefill: dict[int, tuple[float, float]] = {}
    decode: dict[tuple[int, bool], tuple[int, float, float]] = {}
    for run in runs:
        for index, (tokens, seconds) in enumerate(run.prefill):
            known = prefill.get(index)
            if known is None or seconds / tokens < known[1] / known[0]:
                prefill[index] = tokens, seconds
        for position, (jobs, context, step_s) in enumerate(run.decode):
            key = jobs, position > 0 and jobs == 1  # a later one alone is after a long prompt
            if key not in decode or step_s < decode[key][2]:
                decode[key] = jobs, context, step_s
    shared = next((run for run in reversed(runs) if run.shared is not None), runs[-1])
    return SpeedSamples(
        prefill=tuple(prefill.values()),
        decode=tuple(decode.values()),
        shared=shared.shared,
        writers=shared.writers,
    )


class SpeedFile(Generic[_T]):
    """Figures on disk, by what they were measured on: a restart on the same server need not measure again."""

    def __init__(self, path: Path, shape: type[_T]) -> None:
        self._path = path
        try:
            self._speeds = msgspec.json.decode(path.read_bytes(), type=dict[str, shape])  # type: ignore[valid-type]
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            self._speeds = dict[str, _T]()

    def get(self, key: str) -> _T | None:
        return self._speeds.get(key)

    def put(self, key: str, speed: _T) -> None:
        """If the disk is full, it is kept in memory only, and measured again after a restart."""
        self._speeds[key] = speed
        try:
            temporary = self._path.with_suffix(".tmp")
            temporary.write_bytes(msgspec.json.encode(self._speeds))
            temporary.replace(self._path)
        except OSError as error:
            _log.warning("speed_file_unwritable", why=str(error))
