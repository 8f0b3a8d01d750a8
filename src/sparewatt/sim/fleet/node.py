"""The node's side of a job: the product's own count of its work (`node/jobs/ttft_estimator.py`), fed by what the
machine does.

A node knows how fast it is: it measured itself. One that lies believes its lie here, too, and so refuses too little.
"""

from __future__ import annotations

from sparewatt.node.jobs.ttft_estimator import BackendCapacity, TtftEstimator
from sparewatt.protocol.link.node_report import ModelReport, Speed
from sparewatt.protocol.link.node_report import ModelState as ReportedState
from sparewatt.sim.fleet.machine import SimJob, SimMachine
from sparewatt.sim.price_table import nominal_decode_tps
from sparewatt.sim.scenario import STEP_PER_JOB_S, SimModel, Site


class SimNode:
    __slots__ = ("_machine", "_outlook", "_reports")

    def __init__(self, machine: SimMachine) -> None:
        self._machine = machine
        self._outlook = TtftEstimator()
        self._reports: dict[tuple[int, ReportedState], ModelReport] = {}

    def refuses(self, job: SimJob, now_s: float) -> bool:
        self._refresh_capacity()
        late_s = self._outlook.late_ttft_s(
            self._report(job.model),
            job.prompt_tokens,
            promised_s=job.promised_ttft_s,
            now_s=now_s,
            cached_tokens=job.believed_tokens,
        )
        return late_s is not None

    def _refresh_capacity(self) -> None:
        self._outlook.capacity = BackendCapacity(self._machine.site.slots, kv_bytes=int(self._machine.kv_capacity))

    def begin(self, job: SimJob, now_s: float) -> None:
        self._refresh_capacity()
        model, cached_tokens = self._report(job.model), job.believed_tokens
        self._outlook.begin(job.number, model, job.prompt_tokens, now_s=now_s, cached_tokens=cached_tokens)

    def first_token(self, job: SimJob, now_s: float) -> None:
        self._outlook.note_first_token(job.number, now_s=now_s)

    def end(self, job: SimJob, now_s: float) -> None:
        self._outlook.end(job.number, now_s=now_s)

    def restart(self) -> None:
        """The machine died: whoever comes back starts counting anew."""
        self._outlook = TtftEstimator()

    def reading_share(self, now_s: float) -> float:
        self._refresh_capacity()
        return self._outlook.prefill_share(now_s)

    def _report(self, model: SimModel) -> ModelReport:
        state: ReportedState = self._machine.states[model.number].value
        found = self._reports.get((model.number, state))
        if found is None:
            found = self._reports[model.number, state] = ModelReport(
                id=model.name,
                state=state,
                weights_bytes=int(model.weights_bytes),
                kv_bytes_per_token=int(model.kv_bytes_per_token),
                prompt_price_nano=0,
                completion_price_nano=0,
                measured=own_speed(self._machine.site, model),
                prefix_cache_tokens=prefix_cache_tokens(self._machine, model),
            )
        return found


def prefix_cache_tokens(machine: SimMachine, model: SimModel) -> int:
    """What an idle machine could keep of this model's prompts, as it reports it."""
    return max(0, int((machine.kv_capacity + machine.site.prefix_ram_bytes) / model.kv_bytes_per_token))


def own_speed(site: Site, model: SimModel) -> Speed:
    """What the node found when it measured itself."""
    return Speed(
        prefill_tps=site.claims * site.flops / (2 * model.active_params),
        decode_tps=site.claims * site.speed * nominal_decode_tps(site, model.weights_bytes, 1),
        step_per_job_s=STEP_PER_JOB_S / site.claims,
    )
