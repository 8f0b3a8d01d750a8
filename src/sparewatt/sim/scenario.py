"""The simulated fleet: which machines there are, where, how fast they really are, and what they charge.

Everything is drawn from one seed, by the tables in `tables/`.
"""

from __future__ import annotations

import csv
import enum
import math
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import resources
from typing import NamedTuple

import numpy as np

from sparewatt.sim.fleet.physics import BATCHING, MS, SLOTTED, EngineFamily, Floats, Prefill, prefill_of

GB = 1e9
FAMILIES = {"vllm": BATCHING, "sglang": BATCHING, "llama.cpp": SLOTTED, "ollama": SLOTTED}

_PARAMS = re.compile(r"(\d+)b\b")
USABLE_VRAM_SHARE, RESERVED_VRAM_GB = 0.92, 1.5
WARM_MODELS_MAX = 3
HOLDERS_SHARE, HOLDERS_MIN = 0.015, 3
"""Of the machines, those that have a model loaded at the start, at least."""
CONTEXT_GB = 4.0
"""What the models on a card leave free for contexts; otherwise hardly two jobs would fit next to the first model."""
MTBF_S, MTBF_FACTOR_DATACENTRE, DATACENTRE_USD = 4 * 3600.0, 6.0, 0.70
MTTR_S = 30 * 60.0
JOB_FAILS = 0.002
SERVER_SHARES_HOME = {"llama.cpp": 0.5, "ollama": 0.2, "vllm": 0.2, "sglang": 0.1}
SERVER_SHARES_DATACENTRE = {"vllm": 0.6, "sglang": 0.3, "llama.cpp": 0.1}
"""Which model servers owners run, assumed."""
SLOTS = {"vllm": (256,), "sglang": (256,), "llama.cpp": (4, 8, 16), "ollama": (1, 4)}
"""How many answers a server writes at once; an owner of a slotted one has chosen."""
LIE, GARBAGE_SPEED, FLAKY_FAILS = 5.0, 4.0, 0.2
PRICED_BATCH, PRICED_CONTEXT = 8, 1000.0
"""Prices assume that a node decodes this many answers at once, with contexts of so many tokens."""


@dataclass(frozen=True, slots=True)
class SimGpu:
    name: str
    vram_gb: float
    tflops: float
    bandwidth_gb_s: float
    usd_per_hour: float
    share: float
    at_home: bool


@dataclass(frozen=True, slots=True)
class SimModel:
    """`number` is its index in every array."""

    number: int
    name: str
    weights_bytes: float
    active_params: float
    kv_bytes_per_token: float
    popularity: float
    served_as: str = ""
    """What model servers call it, by which a node knows its family."""

    @property
    def total_params(self) -> float:
        """By its name, as in `moe-30b-a3b`; a mixture of experts uses few of them for each token."""
        named = _PARAMS.search(self.name)
        return float(named[1]) * 1e9 if named else self.active_params


HOSTILE_CLAIMS = 200.0
"""Times its speed that a hostile node claims: by far the fastest of the fleet."""


class Hostility(enum.Enum):
    """What a hostile node does with the jobs that its claims bring it."""

    REFUSES = "refuses"
    """It says of every request that it is at fault."""
    SILENT = "silent"
    """It never answers."""
    STALLS = "stalls"
    """It sends a first token at once, and then nothing."""
    NONSENSE = "nonsense"
    """It answers at once, and the answers are worthless."""
    SLEEPER = "sleeper"
    """It serves its first jobs as it should, and refuses all others."""


@dataclass(frozen=True, slots=True)
class Site:
    """What is true about one simulated machine; gateways know only its reports."""

    number: int
    gpu: SimGpu
    region: int
    last_mile_s: float
    speed: float
    """Real speed as a fraction of the table's."""
    usd_per_hour: float
    cold_load_spread: float
    warm: tuple[int, ...]
    mtbf_s: float
    claims: float = 1.0
    """Factor by which it overstates its speed."""
    is_garbage: bool = False
    """It answers fast, and the answers are worthless."""
    is_malformed: bool = False
    """Of those, one whose answers are not even well-formed."""
    fail_share: float = 0.0
    is_known: bool = True
    """Whether the network had timed it before the simulation begins; else it is a newcomer."""
    hostility: Hostility | None = None
    is_absent: bool = False
    """It never comes: for the same fleet without some of its nodes."""
    server: str = "vllm"
    slots: int = SLOTS["vllm"][0]
    prefix_ram_bytes: float = 0.0
    """Main memory for its prefix cache, beyond the free memory of the card."""

    @property
    def usable_bytes(self) -> float:
        return (USABLE_VRAM_SHARE * self.gpu.vram_gb - RESERVED_VRAM_GB) * GB

    def fits(self, model: SimModel) -> bool:
        return fits(self.gpu, model)

    @property
    def family(self) -> EngineFamily:
        return FAMILIES[self.server]

    @property
    def bandwidth(self) -> float:
        """Bytes per second that decoding really reaches."""
        return self.family.bandwidth_share * self.gpu.bandwidth_gb_s * GB * self.speed

    def alone_step_s(self, model: SimModel) -> float:
        """A decoding step of one job with an empty context."""
        return model.weights_bytes / self.bandwidth + self.family.step_fixed_s + self.family.step_per_job_s

    def prefill(self, model: SimModel) -> Prefill:
        flops, alone_s = self.gpu.tflops * 1e12 * self.speed, self.alone_step_s(model)
        return prefill_of(self.family, flops=flops, params=model.active_params, alone_step_s=alone_s)

    def cold_load_s(self, model: SimModel) -> float:
        base_s = 8.0 + model.weights_bytes / GB / 1.5
        return min(30.0, max(10.0, base_s * self.cold_load_spread))


@dataclass(frozen=True, slots=True)
class FaultRates:
    """Fractions of nodes with a fault, and how often machines die. A node has one fault at most."""

    liars: float = 0.0
    garbage: float = 0.0
    flaky: float = 0.0
    hostile: float = 0.0
    absent: float = 0.0
    mtbf_s: float = MTBF_S
    flaky_fails: float = FLAKY_FAILS
    """Of a flaky node's jobs."""


@dataclass(frozen=True, slots=True)
class Scenario:
    models: tuple[SimModel, ...]
    sites: tuple[Site, ...]
    regions: tuple[str, ...]
    user_shares: tuple[float, ...]
    rtt_s: tuple[tuple[float, ...], ...]


def make_scenario(n_sites: int, *, seed: int, faults: FaultRates | None = None, prefix_ram_gb: float = 0.0) -> Scenario:
    rng = random.Random(f"sites {seed}")
    faults = faults or FaultRates()
    models = read_models()
    regions, user_shares, node_shares = read_regions()
    gpus = read_fleet()
    sites = [
        _make_site(number, rng, gpu=gpu, models=models, node_shares=node_shares, mtbf_s=faults.mtbf_s)
        for number, gpu in enumerate(_cards(gpus, n_sites, rng))
    ]
    sites = _with_holders(sites, models, seed=seed)
    sites = [replace(site, prefix_ram_bytes=prefix_ram_gb * GB) for site in _with_servers(sites, seed=seed)]
    return Scenario(models, _with_faults(sites, faults, seed=seed), regions, user_shares, read_rtt())


def _cards(gpus: Sequence[SimGpu], n_sites: int, rng: random.Random) -> list[SimGpu]:
    """Each card by its share of the fleet, to the nearest whole number, in random order.

    Drawn one by one, a fleet of 500 would have between 2 and 8 of the largest card, and that alone would decide the
    results of the largest model.
    """
    counts = [math.floor(gpu.share * n_sites) for gpu in gpus]
    by_remainder = sorted(range(len(gpus)), key=lambda i: counts[i] - gpus[i].share * n_sites)
    for i in by_remainder[: n_sites - sum(counts)]:
        counts[i] += 1
    cards = [gpu for gpu, count in zip(gpus, counts, strict=True) for _ in range(count)]
    rng.shuffle(cards)
    return cards


def _with_holders(sites: Sequence[Site], models: Sequence[SimModel], *, seed: int) -> list[Site]:
    """The same fleet, with every model loaded on at least HOLDERS_SHARE of the machines, as far as it fits on them.

    A network offers the models that its nodes have. Without this a popular large model would begin on no machine at
    all, and where chance first loads it would decide the results more than matching does.
    """
    rng, held = random.Random(f"holders {seed}"), list(sites)
    wanted = max(HOLDERS_MIN, math.ceil(HOLDERS_SHARE * len(sites)))
    for model in sorted(models, key=lambda model: -model.weights_bytes):
        others = [site for site in held if fits(site.gpu, model) and model.number not in site.warm]
        missing = wanted - sum(model.number in site.warm for site in held)
        larger = {other.number for other in models if other.weights_bytes > model.weights_bytes}
        others = [site for site in others if not larger.intersection(site.warm)] or others
        for site in rng.sample(others, max(0, min(missing, len(others)))):
            held[site.number] = replace(site, warm=_beside(model, site, models))
    return held


def _beside(model: SimModel, site: Site, models: Sequence[SimModel]) -> tuple[int, ...]:
    """The machine's warm set with one more model first; those that no longer fit are dropped."""
    left, warm = _room_bytes(site.gpu) - model.weights_bytes, [model.number]
    for number in site.warm:
        if len(warm) < WARM_MODELS_MAX and models[number].weights_bytes <= left:
            left -= models[number].weights_bytes
            warm.append(number)
    return tuple(warm)


def _with_servers(sites: Sequence[Site], *, seed: int) -> Iterator[Site]:
    """A model server for each. Drawn apart from everything else, so that all other draws stay as they are."""
    rng = random.Random(f"servers {seed}")
    for site in sites:
        shares = SERVER_SHARES_HOME if site.gpu.at_home else SERVER_SHARES_DATACENTRE
        server = rng.choices(list(shares), list(shares.values()))[0]
        yield replace(site, server=server, slots=rng.choice(SLOTS[server]))


def _with_faults(sites: list[Site], faults: FaultRates, *, seed: int) -> tuple[Site, ...]:
    """The same fleet with faults in some nodes. All other draws are unchanged, so that runs can be compared."""
    order = random.Random(f"faults {seed}").sample(range(len(sites)), len(sites))
    changes: list[Callable[[Site], Site]] = []
    shares = (
        (faults.liars, _liar),
        (faults.garbage, _cheater),
        (faults.flaky, partial(replace, fail_share=faults.flaky_fails)),
        (faults.hostile, _hostile),
        (faults.absent, _absent),
    )
    for share, fault in shares:
        changes += [fault] * round(share * len(sites))
    for number, change in zip(order, changes, strict=False):
        sites[number] = change(sites[number])
    return tuple(sites)


def _liar(site: Site) -> Site:
    return replace(site, claims=LIE, is_known=False)


def _cheater(site: Site) -> Site:
    """One half of them sends malformed answers, the other half well-formed nonsense."""
    return replace(site, is_garbage=True, is_malformed=site.number % 2 == 0, speed=site.speed * GARBAGE_SPEED)


def _hostile(site: Site) -> Site:
    """A newcomer that claims to be by far the fastest, and to cost nothing."""
    way = tuple(Hostility)[site.number % len(Hostility)]
    return replace(site, hostility=way, claims=HOSTILE_CLAIMS, usd_per_hour=0.0, is_known=False)


def _absent(site: Site) -> Site:
    return replace(site, is_absent=True)


def _make_site(
    number: int,
    rng: random.Random,
    *,
    gpu: SimGpu,
    models: Sequence[SimModel],
    node_shares: Sequence[float],
    mtbf_s: float,
) -> Site:
    last_mile_ms = rng.lognormvariate(math.log(18), 0.6) if gpu.at_home else rng.lognormvariate(math.log(3), 0.5)
    return Site(
        number=number,
        gpu=gpu,
        region=rng.choices(range(len(node_shares)), node_shares)[0],
        last_mile_s=min(150.0, max(1.0, last_mile_ms)) * MS,
        speed=min(1.25, max(0.35, rng.lognormvariate(-0.05, 0.2))),
        usd_per_hour=gpu.usd_per_hour * rng.lognormvariate(0, 0.2),
        cold_load_spread=rng.lognormvariate(0, 0.3),
        warm=_warm_set(gpu, models, rng),
        mtbf_s=mtbf_s * (MTBF_FACTOR_DATACENTRE if gpu.usd_per_hour > DATACENTRE_USD else 1.0),
    )


def fits(gpu: SimGpu, model: SimModel) -> bool:
    """Whether the card has memory for the model and for contexts."""
    return model.weights_bytes <= _room_bytes(gpu)


def _room_bytes(gpu: SimGpu) -> float:
    """For weights, beside contexts."""
    return (USABLE_VRAM_SHARE * gpu.vram_gb - RESERVED_VRAM_GB - CONTEXT_GB) * GB


def _warm_set(gpu: SimGpu, models: Sequence[SimModel], rng: random.Random) -> tuple[int, ...]:
    """Up to WARM_MODELS_MAX models that fit together with contexts, drawn by popularity."""
    left = _room_bytes(gpu)
    warm: list[int] = []
    while len(warm) < WARM_MODELS_MAX:
        fitting = [m for m in models if m.weights_bytes <= left and m.number not in warm]
        if not fitting:
            break
        chosen = rng.choices(fitting, [m.popularity for m in fitting])[0]
        warm.append(chosen.number)
        left -= chosen.weights_bytes
    return tuple(warm)


# prices: a node's price per hour over its nominal throughput


class PriceTable(NamedTuple):
    """$ per prompt token and per completion token, by model and site."""

    prompt: Floats
    completion: Floats


def price_table(scenario: Scenario) -> PriceTable:
    sites, models = scenario.sites, scenario.models
    usd_per_s = np.array([site.usd_per_hour / 3600 for site in sites])
    prefill = [[nominal_prefill_tps(site, model) for site in sites] for model in models]
    decode = [[nominal_decode_tps(site, model) for site in sites] for model in models]
    return PriceTable(usd_per_s / np.array(prefill), usd_per_s / np.array(decode))


def nominal_decode_tps(site: Site, model: SimModel) -> float:
    """By the card's table, whatever the machine's real speed, at the load that prices assume."""
    batch, site = min(site.slots, PRICED_BATCH), replace(site, speed=1.0)
    contexts_s = batch * PRICED_CONTEXT * model.kv_bytes_per_token / site.bandwidth
    return batch / (site.alone_step_s(model) + (batch - 1) * site.family.step_per_job_s + contexts_s)


def nominal_prefill_tps(site: Site, model: SimModel) -> float:
    return PRICED_CONTEXT / replace(site, speed=1.0).prefill(model).seconds(PRICED_CONTEXT)


# tables


def _rows(name: str) -> list[dict[str, str]]:
    text = resources.files(__package__).joinpath("tables", name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def read_fleet() -> tuple[SimGpu, ...]:
    return tuple(
        SimGpu(
            name=row["gpu"],
            vram_gb=float(row["vram_gb"]),
            tflops=float(row["fp16_dense_tflops"]),
            bandwidth_gb_s=float(row["bandwidth_gb_s"]),
            usd_per_hour=float(row["usd_per_hour"]),
            share=float(row["fleet_share"]),
            at_home=row["home_last_mile"] == "1",
        )
        for row in _rows("fleet.csv")
    )


def read_models() -> tuple[SimModel, ...]:
    return tuple(
        SimModel(
            number=number,
            name=row["model"],
            weights_bytes=float(row["weights_gb"]) * GB,
            active_params=float(row["active_params_b"]) * 1e9,
            kv_bytes_per_token=float(row["kv_gb_per_token"]) * GB,
            popularity=float(row["popularity"]),
            served_as=row["served_as"],
        )
        for number, row in enumerate(_rows("models.csv"))
    )


def read_regions() -> tuple[tuple[str, ...], tuple[float, ...], tuple[float, ...]]:
    rows = _rows("regions.csv")
    return (
        tuple(row["region"] for row in rows),
        tuple(float(row["user_share"]) for row in rows),
        tuple(float(row["node_share"]) for row in rows),
    )


class CheckErrors(NamedTuple):
    """How often an answer differs too early from an honest one, by who wrote it."""

    honest_early: float
    other_early: float


def read_check_errors() -> CheckErrors:
    """As `make bench-checks` measured it."""
    shares = {row["who"]: float(row["differs_early"]) for row in _rows("check_errors.csv")}
    return CheckErrors(shares["honest"], shares["other"])


def read_rtt() -> tuple[tuple[float, ...], ...]:
    rows = _rows("rtt_ms.csv")
    return tuple(tuple(float(row[other["region"]]) * MS for other in rows) for row in rows)
