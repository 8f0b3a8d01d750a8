"""Policies and nodes for tests: by hand, and at random."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from sparewatt.policy.check import NodeFacts
from sparewatt.policy.fields import COMPLIANCES, RETENTIONS, SORTS, TIERS, WEIGHTS
from sparewatt.policy.gpus import GPU_CLASSES
from sparewatt.policy.model import MaxPrice, NameFilter, Policy, Range
from sparewatt.policy.quantization import QUANTIZATIONS
from sparewatt.policy.regions import COVERS, PLACES, outside

GOOD = NodeFacts(
    node_id="0xa1",
    names=frozenset({"0xa1", "attic", "acct_1"}),
    place="DE",
    gpu="a100",
    gpu_class="a100",
    vram_gb=80.0,
    gpu_count=1,
    uptime=0.995,
    reputation=0.9,
    compliance=frozenset({"gdpr"}),
    attested_by=frozenset({"auditor"}),
    tier="verified",
    data_policy="no_log",
    hourly_nano=1_200_000_000,
    model="qwen3-8b",
    quantization="fp8",
    prompt_nano=100_000_000,
    completion_nano=300_000_000,
    throughput_tps=80.0,
    ttft_ms=200.0,
    warm=True,
)
UNKNOWN = NodeFacts(node_id="0xb2", names=frozenset({"0xb2"}))


def a_node(**changes: Any) -> NodeFacts:
    return replace(GOOD, **changes)


NAMES = ("attic", "cellar", "0xa1", "acct 1", 'say "hi", ok', "é", ">=odd", "[x]", "a\\b")
GPUS = ("a100", "h100", "rtx-4090", "l4")
words = st.sampled_from(sorted(PLACES))
regions = st.one_of(
    st.sets(words, min_size=1, max_size=4).map(lambda chosen: frozenset().union(*(COVERS[w] for w in chosen))),
    st.sets(words, min_size=1, max_size=3)
    .map(lambda chosen: outside(frozenset().union(*(COVERS[word] for word in chosen))))
    .filter(bool),
)
fractions = st.floats(0.0, 1.0).map(lambda number: number + 0.0)
nanos = st.integers(0, 10**12)


def subsets(*choices: str) -> st.SearchStrategy[frozenset[str]]:
    return st.frozensets(st.sampled_from(choices), min_size=1)


def _range(low: float | None, high: float | None, low_open: bool, high_open: bool) -> Range:  # noqa: FBT001
    bounds = {} if low is None else {"low": low, "low_open": low_open}
    return Range(**bounds, **({} if high is None else {"high": high, "high_open": high_open}))  # type: ignore[arg-type]


def ranges(most: float, *, whole: bool = False) -> st.SearchStrategy[Range]:
    numbers = st.integers(0, int(most)).map(float) if whole else st.floats(0.0, most).map(lambda n: n + 0.0)
    made = st.builds(_range, st.none() | numbers, st.none() | numbers, st.booleans(), st.booleans())
    return made.filter(lambda found: found != Range() and found.low < found.high)


gpu_names = subsets(*GPUS).map(lambda chosen: NameFilter(allowed=chosen)) | subsets(*GPUS).map(
    lambda chosen: NameFilter(denied=chosen)
)
prices = st.builds(MaxPrice, st.none() | nanos, st.none() | nanos).filter(lambda cap: cap != MaxPrice())
weights = st.dictionaries(st.sampled_from(WEIGHTS), st.floats(0.0, 1000.0).map(lambda n: n + 0.0), min_size=1).map(
    lambda found: tuple(sorted(found.items()))
)

FIELD_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "region": regions,
    "near": words,
    "gpu": gpu_names,
    "gpu_class": subsets(*GPU_CLASSES),
    "vram_gb": ranges(1000.0),
    "gpu_count": ranges(16, whole=True),
    "uptime": ranges(1.0),
    "reputation": ranges(1.0),
    "compliance": subsets(*COMPLIANCES),
    "attested_by": subsets(*NAMES),
    "tier": subsets(*TIERS),
    "quantizations": subsets(*QUANTIZATIONS),
    "data_policy": st.sampled_from(("no_log", "may_log")),
    "min_throughput": st.floats(0.0, 1e5),
    "max_ttft_ms": st.floats(0.0, 1e6),
    "warm": st.sampled_from(("require", "prefer", "any")),
    "max_price": prices,
    "max_hourly": nanos,
    "only": subsets(*NAMES),
    "ignore": subsets(*NAMES),
    "order": st.lists(st.sampled_from(NAMES), min_size=1, unique=True).map(tuple),
    "sort": st.sampled_from(SORTS),
    "weights": weights,
    "allow_fallbacks": st.booleans(),
    "allow_resume": st.booleans(),
    "require_parameters": st.booleans(),
    "retention": st.sampled_from(RETENTIONS),
    "checks": st.sampled_from(("none", "allowed")),
}

policies: st.SearchStrategy[Policy] = st.fixed_dictionaries({}, optional=FIELD_VALUES).map(lambda said: Policy(**said))

few_fields: st.SearchStrategy[Policy] = st.sets(st.sampled_from(sorted(FIELD_VALUES)), max_size=3).flatmap(
    lambda names: st.fixed_dictionaries({name: FIELD_VALUES[name] for name in sorted(names)}).map(
        lambda said: Policy(**said)
    )
)

facts: st.SearchStrategy[NodeFacts] = st.builds(
    NodeFacts,
    node_id=st.just("0xa1"),
    names=st.frozensets(st.sampled_from(NAMES), max_size=3),
    place=st.none() | words,
    gpu=st.none() | st.sampled_from(GPUS),
    gpu_class=st.none() | st.sampled_from(GPU_CLASSES),
    vram_gb=st.none() | st.floats(0.0, 1000.0),
    gpu_count=st.none() | st.integers(0, 16),
    uptime=st.none() | fractions,
    reputation=st.none() | fractions,
    compliance=st.frozensets(st.sampled_from(COMPLIANCES)),
    attested_by=st.frozensets(st.sampled_from(NAMES), max_size=3),
    tier=st.none() | st.sampled_from(TIERS),
    data_policy=st.sampled_from((None, "no_log", "may_log")),
    hourly_nano=st.none() | nanos,
    quantization=st.none() | st.sampled_from(QUANTIZATIONS),
    prompt_nano=st.none() | nanos,
    completion_nano=st.none() | nanos,
    throughput_tps=st.none() | st.floats(0.0, 1e5),
    ttft_ms=st.none() | st.floats(0.0, 1e6),
    warm=st.booleans(),
)
