"""Metric families about all nodes together, in one pass over the table."""

from __future__ import annotations

from collections import Counter

from sparewatt.inference.fleet.power_readings import PowerReadings
from sparewatt.inference.matcher.node_row import HealthRules, NodeRow, NodeState, state_of
from sparewatt.telemetry.metrics import names
from sparewatt.telemetry.metrics.job_metrics import labelled, largest
from sparewatt.telemetry.metrics.model import Family, Sample, Samples, family, one


class NetworkSurvey:
    """Counts over nodes, one after the other."""

    def __init__(self, power: PowerReadings, *, now_s: float, rules: HealthRules) -> None:
        self._power = power
        self._now_s, self._rules = now_s, rules
        self._states = Counter({state.value: 0 for state in NodeState})
        self._gpus = self._vram_bytes = self._slots = 0
        self._watts = 0.0
        self._models: Counter[tuple[str, str]] = Counter()

    def add(self, row: NodeRow) -> None:
        self._states[state_of(row, now_s=self._now_s, rules=self._rules).value] += 1
        if not row.connected:
            return
        specs, sensors = row.specs, self._power.latest(row.id)
        self._gpus += specs.gpu_count
        self._vram_bytes += specs.vram_bytes
        self._slots += specs.slots
        self._watts += (sensors.power_watts or 0.0) if sensors is not None else 0.0
        for model in specs.models:
            self._models[model.id, model.state] += 1

    def families(self) -> Samples:
        return [
            labelled(names.NODES, "state", self._states),
            one(names.GPUS, self._gpus),
            one(names.VRAM, self._vram_bytes),
            one(names.SLOTS, self._slots),
            one(names.POWER, self._watts),
            _model_nodes(self._models),
        ]


def _model_nodes(counted: Counter[tuple[str, str]]) -> Family:
    """By model and its state."""
    by_state: dict[str, dict[str, int]] = {}
    for (model, state), count in counted.items():
        by_state.setdefault(state, {})[model] = count
    return family(
        names.MODEL_NODES,
        *(
            Sample(count, (("model", model), ("state", state)))
            for state, counts in sorted(by_state.items())
            for model, count in sorted(largest(counts).items())
        ),
    )
