"""The five unequal engines with continuous batching of `real_servers`: as processes' flags, as schedulers, and as
machines of the simulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

from bench.code_trace import CodeRequest

from sparewatt.inference.matcher.formula import BALANCED
from sparewatt.sim.fleet.physics import EngineFamily, Prefill
from sparewatt.sim.scenario import Scenario, SimGpu, SimModel, Site, make_scenario
from sparewatt.sim.schedulers.gateways import SimGateways
from sparewatt.sim.servers.facts import ModelShape, ServerKind
from sparewatt.sim.traffic import SimJob
from sparewatt.sim.world import World
from sparewatt.testing.engine.batching import BatchLimits, BatchScheduler, StepCurve
from sparewatt.testing.engine.settings import EngineSettings

N_CTX = 32_768
CHUNK_TOKENS = 2048
HOURLY_USD = 0.10
"""The default of a node."""
KV_BYTES = float(ModelShape().kv_bytes_per_token)
WEIGHTS_BYTES = float(EngineSettings().weights_bytes)
"""As the processes show both, where their dialect does."""
RTT_S = 0.001
"""As gateways measure it for nodes on loopback."""
HEARTBEAT_S = 5.0
SETTLED_S = 2 * HEARTBEAT_S
"""By then every node has reported, as in the real network."""
UNTIL_S = 3600.0


@dataclass(frozen=True, slots=True)
class BatchingEngine:
    name: str
    prefill_tps: float
    step_s: float
    kv_tokens: int
    seqs_max: int = 64
    prefill_fixed_s: float = 0.015
    step_per_job_s: float = 0.0002
    step_per_token_s: float = 5e-8

    @property
    def curve(self) -> StepCurve:
        return StepCurve(
            step_s=self.step_s,
            step_per_job_s=self.step_per_job_s,
            step_per_token_s=self.step_per_token_s,
            prefill_fixed_s=self.prefill_fixed_s,
            prefill_token_s=1 / self.prefill_tps,
        )

    @property
    def flags(self) -> list[str]:
        return [
            *("--engine-kind=batching", f"--n-ctx={N_CTX}", f"--chunk-tokens={CHUNK_TOKENS}"),
            *(f"--max-num-seqs={self.seqs_max}", f"--kv-tokens={self.kv_tokens}"),
            *(f"--{name.replace('_', '-')}={value}" for name, value in asdict(self.curve).items()),
        ]


ENGINES = (
    BatchingEngine("first", prefill_tps=20_000, step_s=0.007, kv_tokens=400_000),
    BatchingEngine("second", prefill_tps=6_500, step_s=0.012, kv_tokens=160_000),
    BatchingEngine("third", prefill_tps=5_100, step_s=0.014, kv_tokens=120_000),
    BatchingEngine("fourth", prefill_tps=3_800, step_s=0.020, kv_tokens=80_000),
    BatchingEngine("fifth", prefill_tps=1_600, step_s=0.030, kv_tokens=48_000),
)


def scheduler_of(engine: BatchingEngine) -> BatchScheduler:
    """The engine without its process."""
    limits = BatchLimits(
        kind="batching",
        seqs_max=engine.seqs_max,
        chunk_tokens=CHUNK_TOKENS,
        context_length=N_CTX,
        kv_tokens=engine.kv_tokens,
    )
    return BatchScheduler(limits, engine.curve)


# the same engines in the simulator

_MODEL = SimModel(
    number=0,
    name="unequal",
    weights_bytes=WEIGHTS_BYTES,
    active_params=1e9,
    kv_bytes_per_token=KV_BYTES,
    popularity=1.0,
)
_GPU = SimGpu("none", vram_gb=24.0, tflops=1.0, bandwidth_gb_s=1.0, usd_per_hour=HOURLY_USD, share=1.0, at_home=False)


@dataclass(frozen=True, slots=True)
class EngineSite(Site):
    """A machine with exactly the engine's curve, which never dies."""

    engine: BatchingEngine = ENGINES[0]

    @property
    def family(self) -> EngineFamily:
        fixed_s = self.engine.step_s - self.engine.step_per_job_s - WEIGHTS_BYTES / self.bandwidth
        return EngineFamily(1.0, 1.0, fixed_s, self.engine.step_per_job_s, 0.0, 0.0, CHUNK_TOKENS, hidden_share=0.0)

    @property
    def usable_bytes(self) -> float:
        return self.engine.kv_tokens * KV_BYTES + WEIGHTS_BYTES

    @property
    def bandwidth(self) -> float:
        return KV_BYTES / self.engine.step_per_token_s

    def prefill(self, model: SimModel) -> Prefill:  # noqa: ARG002 (there is one)
        return Prefill(self.engine.prefill_fixed_s, 1 / self.engine.prefill_tps, 0.0, 0.0, CHUNK_TOKENS)


class SimulatedRun(NamedTuple):
    ttft_s: list[float]
    e2e_s: list[float]
    jobs: list[int]


def simulate(kinds: Sequence[ServerKind], trace: Sequence[CodeRequest], *, seed: int) -> SimulatedRun:
    """The trace on the simulated engines behind one simulated gateway, with the shipped matcher."""
    world = World(_scenario(kinds), seed=seed, gateway_regions=(0,))
    gateways = SimGateways(world, BALANCED, heartbeat_s=HEARTBEAT_S, seed=seed)
    jobs = [
        SimJob(number, _MODEL, SETTLED_S + one.at_s, one.prompt_tokens, one.answer_tokens, region=0)
        for number, one in enumerate(trace)
    ]
    world.run(jobs, gateways, until_s=UNTIL_S)
    late = float("inf")
    return SimulatedRun(
        [late if job.first_token_s is None else job.first_token_s - job.arrived_s for job in jobs],
        [late if job.finished_s is None else job.finished_s - job.arrived_s for job in jobs],
        [sum(job.site == place for job in jobs) for place in range(len(ENGINES))],
    )


def _scenario(kinds: Sequence[ServerKind]) -> Scenario:
    drawn = make_scenario(len(ENGINES), seed=0)
    sites = tuple(_site(number, engine, kinds[number]) for number, engine in enumerate(ENGINES))
    return replace(drawn, models=(_MODEL,), sites=sites, regions=("here",), user_shares=(1.0,), rtt_s=((RTT_S,),))


def _site(number: int, engine: BatchingEngine, kind: ServerKind) -> EngineSite:
    return EngineSite(
        number=number,
        gpu=_GPU,
        region=0,
        last_mile_s=0.0,
        speed=1.0,
        usd_per_hour=HOURLY_USD,
        cold_load_spread=1.0,
        warm=(0,),
        mtbf_s=1e12,
        server=kind,
        slots=engine.seqs_max,
        engine=engine,
    )
