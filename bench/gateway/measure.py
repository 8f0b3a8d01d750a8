"""Measuring: one target under one workload, once; and all of them in turns, the workload outermost."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from bench.gateway.answers import TOKENS
from bench.gateway.judging import is_disturbed
from bench.gateway.processes import Spent, cpu_s, has_ended, pss_bytes, realtime, settle, spent
from bench.gateway.sample import Sample
from bench.gateway.scenarios import HELD_STREAMS, MEMORY, Scenario, write_body
from bench.gateway.targets import DIRECT, LITE, NGINX, OURS, OURS_TWICE, Backend, Target
from bench.gateway.tools import CannotMeasure, Tools, load_argv, run_load

TOO_SLOW_FOR = {LITE: ("S2", "S3", "S3-shared", "burst", "memory")}
"""What a target collapses under; to wait for it would spoil the others' turns."""
TWO_PROCESSES = "N64"
TRIES = 3
HOLD_S_MAX = 20.0
"""A thousand streams are opened in a few seconds, and would last half a minute."""
IDLE, IDLE_S = "idle", 2.0
WARM_UP = ("--seconds=0.5", "--connections=8")


@dataclass(frozen=True, slots=True)
class Stand:
    """Everything that a measurement needs, running."""

    tools: Tools
    backend: Backend
    targets: Sequence[Target]
    folder: Path

    def everybody(self) -> list[tuple[int, ...]]:
        """Who must come to rest: each target, and what stands behind it."""
        return [pids for target in self.targets for pids in (target.pids, target.helpers)]

    def needed_for(self, target: Target) -> list[int]:
        return [*target.pids, *target.helpers, self.backend.pid]

    def check(self) -> None:
        """A process that has ended measures nothing."""
        for target in self.targets:
            if any(map(has_ended, (*target.pids, *target.helpers))):
                raise CannotMeasure(f"A process of {target.name} ended while it was needed.")


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def measure(stand: Stand, scenario: Scenario, target: Target, number: int) -> Sample:
    """Again, a few times, when something else had the processor in between."""
    for _ in range(TRIES):
        sample = _measure_once(stand, scenario, target, number)
        if not is_disturbed(sample):
            break
        tell(f"  {target.name} under {scenario.name}: something else ran for {sample.overrun_ms:.0f} ms")
    return sample


def _measure_once(stand: Stand, scenario: Scenario, target: Target, number: int) -> Sample:
    argv = load_argv(
        stand.tools,
        port=target.port,
        key=target.key,
        body=write_body(scenario, stand.folder, is_ours=bool(target.helpers)),
        flags=scenario.flags,
    )
    before = _spent(target)
    with realtime(stand.needed_for(target), behind=target.database):
        load = run_load(argv, seconds=scenario.seconds)
        stand.check()
        settled = settle(stand.everybody())
    sample = _sample(scenario.name, target, number, load, before)
    return replace(sample, settled=settled, faults=_faults(scenario, load))


class Account(NamedTuple):
    """What has been spent so far."""

    own: Spent
    database: Spent
    helpers: Spent


def _spent(target: Target) -> Account:
    return Account(spent(target.pids), spent(target.database), spent(target.helpers))


def _sample(scenario: str, target: Target, number: int, load: dict[str, Any], before: Account) -> Sample:
    """What has been spent since."""
    own_s, database_s, helpers_s = (round(cpu_s(was, now), 4) for was, now in zip(before, _spent(target), strict=True))
    return Sample(scenario, target.name, number, load, cpu_s=own_s, database_cpu_s=database_s, helper_cpu_s=helpers_s)


def _faults(scenario: Scenario, load: dict[str, Any]) -> list[str]:
    """Why the result does not count."""
    found = [f"{load[name]} {name}" for name in ("errors", "non_2xx") if load[name]]
    if not load["completed"]:
        found.append("no answer")
    elif scenario.is_stream and (load["tokens_min"], load["tokens_max"]) != (TOKENS, TOKENS):
        found.append(f"{load['tokens_min']} to {load['tokens_max']} tokens per stream")
    return found


def measure_memory(stand: Stand, target: Target) -> Sample:
    """What a thousand open streams add. Once per target, before anything else has made its heap larger."""
    flags = (f"--rate={MEMORY.rate}", f"--hold={HELD_STREAMS}")
    body = write_body(MEMORY, stand.folder)
    argv = load_argv(stand.tools, port=target.port, key=target.key, body=body, flags=flags)
    before, account = pss_bytes(target.pids), _spent(target)
    with realtime(stand.needed_for(target), behind=target.database):
        holder = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        try:
            line = _line_within(holder, HOLD_S_MAX)
            after = pss_bytes(target.pids)
        finally:
            holder.send_signal(signal.SIGTERM)
            holder.wait(HOLD_S_MAX)
        settled = settle(stand.everybody())
    faults = [] if line.startswith("{") and json.loads(line)["held"] == HELD_STREAMS else ["streams were not held"]
    sample = _sample(MEMORY.name, target, 0, {}, account)
    return replace(sample, memory_bytes=after - before, settled=settled, faults=faults)


def _line_within(process: subprocess.Popen[str], seconds: float) -> str:
    """Its first line; a process that says nothing in that time is ended, which ends the reading."""
    assert process.stdout is not None
    timer = threading.Timer(seconds, process.terminate)
    timer.start()
    try:
        return process.stdout.readline()
    finally:
        timer.cancel()


def measure_idle(target: Target) -> Sample:
    """What it costs to do nothing; for us, to be linked to a thousand nodes."""
    before = _spent(target)
    time.sleep(IDLE_S)
    return _sample(IDLE, target, 0, {}, before)


def warm_up(stand: Stand, scenarios: Sequence[Scenario]) -> None:
    """A few answers of each kind from everybody; a target that cannot answer at all is found here."""
    kinds = {scenario.is_stream: scenario for scenario in scenarios}
    for target in stand.targets:
        for scenario in kinds.values():
            body = write_body(scenario, stand.folder)
            argv = load_argv(stand.tools, port=target.port, key=target.key, body=body, flags=WARM_UP)
            load = run_load(argv, seconds=1.0)
            if faults := _faults(scenario, load):
                raise CannotMeasure(f"{target.name} does not answer as it should: {', '.join(faults)}")
    settle(stand.everybody())


def rounds(stand: Stand, scenarios: Sequence[Scenario], count: int, *, with_memory: bool) -> list[Sample]:
    found = [_told(measure_idle(target)) for target in stand.targets if target.helpers]
    if with_memory:
        found += [_told(measure_memory(stand, target)) for target in stand.targets if _may(target, MEMORY.name)]
    for number in range(count):
        first = number % len(stand.targets)  # another one in every round: whoever comes first finds caches cold
        for scenario in scenarios:
            for target in (*stand.targets[first:], *stand.targets[:first]):
                if _may(target, scenario.name):
                    found.append(_told(measure(stand, scenario, target, number)))
    return found


def _may(target: Target, scenario: str) -> bool:
    """Two processes share the other core with what asks them: nothing but their requests per second is comparable."""
    if target.name == DIRECT and scenario == MEMORY.name:
        return False
    if target.name == OURS_TWICE or scenario == TWO_PROCESSES:
        return scenario == TWO_PROCESSES and target.name in {NGINX, OURS, OURS_TWICE}
    return scenario not in TOO_SLOW_FOR.get(target.name, ())


def _told(sample: Sample) -> Sample:
    tell(f"round {sample.round + 1} {sample.scenario:>6} {sample.target:<14} {_in_words(sample)}")
    return sample


def _in_words(sample: Sample) -> str:
    faults = f"  FAULTS: {', '.join(sample.faults)}" if sample.faults else ""
    faults += "" if sample.settled else "  (did not settle)"
    if sample.scenario == IDLE:
        return f"cpu {sample.cpu_s:.2f} s in {IDLE_S:g} s, nodes {sample.helper_cpu_s:.2f}"
    if not sample.load:
        return f"+{sample.memory_bytes / 1e6:.1f} MB{faults}"
    load = sample.load
    parts = [f"{load['per_s']:>9.0f}/s", f"{1e6 * sample.cpu_s / max(1, load['completed']):>7.0f} us/request"]
    for name, what in (("latency_ms", "whole"), ("first_token_ms", "first"), ("token_ms", "token")):
        if load[name]:
            parts.append(f"{what} {load[name]['p50']:.2f}/{load[name]['p99']:.2f} ms")
    if load["tokens"]:
        parts.append(f"{1e6 * sample.cpu_s / load['tokens']:.1f} us/token")
    if sample.helper_cpu_s or sample.database_cpu_s:
        parts.append(f"cpu {sample.cpu_s:.2f} s, nodes {sample.helper_cpu_s:.2f}, database {sample.database_cpu_s:.2f}")
    return "  ".join(parts) + faults
