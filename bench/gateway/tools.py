"""The C programs: a model server that does no work, and a load generator. Built when their source is newer."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.realtime import REALTIME_PRIORITY

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".bench"
"""Ignored by git."""
LOAD_CORE = 1
SPARE_S = 40.0
"""What a run may take beyond its own time: for open answers, and the generator's time-out for them."""


class CannotMeasure(Exception):
    """A precondition of the measurement is missing; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Tools:
    backend: Path
    load: Path
    is_realtime: bool


def build(*, is_realtime: bool) -> Tools:
    if shutil.which("cc") is None:
        raise CannotMeasure("There is no C compiler. On Debian: apt-get install gcc libc6-dev")
    CACHE.mkdir(exist_ok=True)
    return Tools(backend=_built("backend"), load=_built("load"), is_realtime=is_realtime)


def _built(name: str) -> Path:
    source, program = HERE / f"{name}.c", CACHE / name
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        argv = ["cc", "-O2", "-Wall", "-Wextra", "-o", str(program), str(source)]
        built = subprocess.run(argv, check=False, capture_output=True, text=True)
        if built.returncode:
            raise CannotMeasure(f"{source.name} cannot be compiled: {built.stderr[:500]}")
    return program


def load_argv(tools: Tools, *, port: int, key: str, body: Path, flags: tuple[str, ...]) -> list[str]:
    ahead = ["chrt", "-f", str(REALTIME_PRIORITY)] if tools.is_realtime else []
    target = [f"--port={port}", f"--key={key}", f"--body={body}"]
    return [*ahead, "taskset", "-c", str(LOAD_CORE), str(tools.load), *target, *flags]


def run_load(argv: list[str], *, seconds: float) -> dict[str, Any]:
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=seconds + SPARE_S)
    found: dict[str, Any] = json.loads(done.stdout)
    return found
