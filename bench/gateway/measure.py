"""Measures one target under one workload, and all of them in rounds, workload by workload."""

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
"""Workloads under which a target collapses; waiting for it would disturb the next target."""
TWO_PROCESSES = "N64"
TRIES = 3
HOLD_S_MAX = 20.0
"""A thousand streams are opened in a few seconds and last half a minute."""
IDLE, IDLE_S = "idle", 2.0
WARM_UP = ("--seconds=0.5", "--connections=8")


@dataclass(frozen=True, slots=True)
class Testbed:
    """The running processes and files of a measurement."""

    tools: Tools
    backend: Backend
    targets: Sequence[Target]
    folder: Path

    def process_groups(self) -> list[tuple[int, ...]]:
        """Each target, and its helper processes; all must be idle before the next sample."""
        return [pids for target in self.targets for pids in (target.pids, target.helpers)]

    def needed_for(self, target: Target) -> list[int]:
        return [*target.pids, *target.helpers, self.backend.pid]

    def check(self) -> None:
        """Raises CannotMeasure if a process has ended."""
        for target in self.targets:
            if any(map(has_ended, (*target.pids, *target.helpers))):
                raise CannotMeasure(f"A process of {target.name} ended while it was needed.")


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def measure(testbed: Testbed, scenario: Scenario, target: Target, number: int) -> Sample:
    """Repeats a sample that was disturbed by other programs, up to TRIES times."""
    for _ in range(TRIES):
        sample = _measure_once(testbed, scenario, target, number)
        if not is_disturbed(sample):
            break
        log(f"  {target.name} under {scenario.name}: something else ran for {sample.overrun_ms:.0f} ms")
    return sample


def _measure_once(testbed: Testbed, scenario: Scenario, target: Target, number: int) -> Sample:
    argv = load_argv(
        testbed.tools,
        port=target.port,
        key=target.key,
        body=write_body(scenario, testbed.folder, is_ours=bool(target.helpers)),
        flags=scenario.flags,
    )
    before = _spent(target)
    with realtime(testbed.needed_for(target), behind=target.database):
        load = run_load(argv, seconds=scenario.seconds)
        testbed.check()
        settled = settle(testbed.process_groups())
    sample = _sample(scenario.name, target, number, load, before)
    return replace(sample, settled=settled, faults=_faults(scenario, load))


class CpuSpent(NamedTuple):
    """Processor time so far."""

    own: Spent
    database: Spent
    helpers: Spent


def _spent(target: Target) -> CpuSpent:
    return CpuSpent(spent(target.pids), spent(target.database), spent(target.helpers))


def _sample(scenario: str, target: Target, number: int, load: dict[str, Any], before: CpuSpent) -> Sample:
    """With the processor time since `before`."""
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


def measure_memory(testbed: Testbed, target: Target) -> Sample:
    """Memory of a thousand open streams. Once per target, before other workloads have grown its heap."""
    flags = (f"--rate={MEMORY.rate}", f"--hold={HELD_STREAMS}")
    body = write_body(MEMORY, testbed.folder)
    argv = load_argv(testbed.tools, port=target.port, key=target.key, body=body, flags=flags)
    before, account = pss_bytes(target.pids), _spent(target)
    with realtime(testbed.needed_for(target), behind=target.database):
        holder = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        try:
            line = _line_within(holder, HOLD_S_MAX)
            after = pss_bytes(target.pids)
        finally:
            holder.send_signal(signal.SIGTERM)
            holder.wait(HOLD_S_MAX)
        settled = settle(testbed.process_groups())
    faults = [] if line.startswith("{") and json.loads(line)["held"] == HELD_STREAMS else ["streams were not held"]
    sample = _sample(MEMORY.name, target, 0, {}, account)
    return replace(sample, memory_bytes=after - before, settled=settled, faults=faults)


def _line_within(process: subprocess.Popen[str], seconds: float) -> str:
    """The first line of output. After `seconds` the process is terminated, which ends the read."""
    assert process.stdout is not None
    timer = threading.Timer(seconds, process.terminate)
    timer.start()
    try:
        return process.stdout.readline()
    finally:
        timer.cancel()


def measure_idle(target: Target) -> Sample:
    """Processor time without requests: for our gateway, that of a thousand links."""
    before = _spent(target)
    time.sleep(IDLE_S)
    return _sample(IDLE, target, 0, {}, before)


def warm_up(testbed: Testbed, scenarios: Sequence[Scenario]) -> None:
    """A few answers of each kind from every target. Raises CannotMeasure if one does not answer."""
    kinds = {scenario.is_stream: scenario for scenario in scenarios}
    for target in testbed.targets:
        for scenario in kinds.values():
            body = write_body(scenario, testbed.folder)
            argv = load_argv(testbed.tools, port=target.port, key=target.key, body=body, flags=WARM_UP)
            load = run_load(argv, seconds=1.0)
            if faults := _faults(scenario, load):
                raise CannotMeasure(f"{target.name} does not answer as it should: {', '.join(faults)}")
    settle(testbed.process_groups())


def rounds(testbed: Testbed, scenarios: Sequence[Scenario], count: int, *, with_memory: bool) -> list[Sample]:
    found = [_logged(measure_idle(target)) for target in testbed.targets if target.helpers]
    if with_memory:
        found += [
            _logged(measure_memory(testbed, target)) for target in testbed.targets if _applies(target, MEMORY.name)
        ]
    for number in range(count):
        first = number % len(testbed.targets)  # rotates, since the first target of a round has cold caches
        for scenario in scenarios:
            for target in (*testbed.targets[first:], *testbed.targets[:first]):
                if _applies(target, scenario.name):
                    found.append(_logged(measure(testbed, scenario, target, number)))
    return found


def _applies(target: Target, scenario: str) -> bool:
    """Two processes share a core with the load generator: only their requests per second can be compared."""
    if target.name == DIRECT and scenario == MEMORY.name:
        return False
    if target.name == OURS_TWICE or scenario == TWO_PROCESSES:
        return scenario == TWO_PROCESSES and target.name in {NGINX, OURS, OURS_TWICE}
    return scenario not in TOO_SLOW_FOR.get(target.name, ())


def _logged(sample: Sample) -> Sample:
    log(f"round {sample.round + 1} {sample.scenario:>6} {sample.target:<14} {_in_words(sample)}")
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
