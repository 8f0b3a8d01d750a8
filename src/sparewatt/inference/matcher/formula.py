"""The cost of a job on a node, part by part, in seconds, and the rankings that weigh the parts. The lowest cost wins.

    C = network + queue + cold load + wait for memory + prefill + decode         the user's own time
      + what it slows down for others
      + price, at the tier's exchange rate
      + flakiness, priced from the node's record
      + suspicion

`fast`, `balanced` and `economy` differ in what a dollar is worth; a request may change that, and the weight of single
parts. `neuralgrid` is the published formula of NeuralGrid, verbatim, for parity and as a baseline: it rewards oversized
cards and a $0 price and ignores load, so it is never the default.

The cost functions use only `+ - * /`, comparisons and minimum/maximum: the same lines run on floats, on numpy columns
and, compiled, in a loop, and give the same bits. `x` holds one node's numbers or the columns of many, by `ColumnField`;
`q` is the `MatchQuery`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, assert_never, get_args

import numpy as np
from numpy.typing import NDArray

from sparewatt.core.errors import InvalidField
from sparewatt.inference.matcher.columns import ColumnField

OTHERS_WEIGHT = 1.5
"""A second that others wait counts for more than the user's own: jobs that are still to come will wait, too."""
STALL_WEIGHT = 2.0
"""While a prompt is read all answers stop, and the prompts of jobs still to come wait: those come in bursts."""
OVERLAP = 0.5
"""Of the steps of an answer, the share that the jobs already there take part in."""
KV_WAIT_S_MAX = 20.0
KV_WAIT_SHARE = 0.35
SUSPECT_S = 60.0
"""More than any sane prediction: a suspect node is used only if no other can be."""

PARTS = (
    "network",
    "queue",
    "cold_load",
    "memory",
    "prefill",
    "decode",
    "others",
    "price",
    "flakiness",
    "suspect",
)
UNTIL_FIRST_TOKEN = PARTS[:5]
SUMMARY = ("cost", "first_token_s", "finish_s", "usd")
UNIT_WEIGHTS = (1.0,) * len(PARTS)
COST_MAX = float(np.finfo(np.float64).max)
"""Any cost is at most this; infinity marks a node that is not eligible."""
WEIGHT_MAX = 1000.0
"""A part that counts a thousand times decides alone; more would only drown the rounding."""


def queue_time(q: Any, x: Any) -> Any:
    """Seconds until the prompts ahead are read: those sent from here, then those of others; and until a slot is free.

    A server reads prompts in the order of arrival, whatever it writes meanwhile. Some of it passes on the way there,
    but never more than the way takes: being farther must not pay.
    """
    own = np.maximum(x[ColumnField.OWN_READ_MIN_S], x[ColumnField.OWN_READ_END_S] - q.now_s)
    unread = own + np.maximum(0.0, x[ColumnField.FOREIGN_READ_END_S] - q.now_s)
    return np.maximum(x[ColumnField.OWN_READ_MIN_S], unread - x[ColumnField.RTT_S]) + x[ColumnField.SLOT_WAIT_S]


def prefill_time(q: Any, x: Any) -> Any:
    """Seconds to read the prompt on an idle node."""
    per_token = x[ColumnField.PREFILL_TOKEN_S] + q.prompt_tokens * x[ColumnField.PREFILL_SQUARE_S]
    return x[ColumnField.PREFILL_FIXED_S] + q.prompt_tokens * per_token


def decode_time(q: Any, step_s: Any, step_token_s: Any) -> Any:
    """Seconds to write the answer. The context grows: a step reads the prompt and, on average, half of the answer."""
    return q.output_tokens * (step_s + (q.prompt_tokens + q.output_tokens * 0.5) * step_token_s)


def memory_wait(q: Any, decode_s: Any, kv_token: Any, free_bytes: Any) -> Any:
    """Seconds until other jobs have finished, if the job's KV cache does not fit beside theirs."""
    need = np.maximum(1.0, (q.prompt_tokens + q.output_tokens) * kv_token)
    short = np.maximum(0.0, need - free_bytes) / need
    return (short > 0.0) * np.minimum(KV_WAIT_S_MAX, KV_WAIT_SHARE * decode_s * (1.0 + short))


def slowdown(q: Any, x: Any, prefill_s: Any) -> Any:
    """What the jobs already there lose: they stall while the prompt is read, and their steps grow by one job."""
    grows = x[ColumnField.STEP_ADDED_S] + q.prompt_tokens * x[ColumnField.KV_TOKEN_S]
    lost = STALL_WEIGHT * prefill_s * x[ColumnField.STALL_SHARE] + q.output_tokens * grows * OVERLAP
    return OTHERS_WEIGHT * x[ColumnField.JOBS] * lost


def asked_usd(q: Any, prompt_usd: Any, completion_usd: Any) -> Any:
    """What the node asks for the job."""
    return q.prompt_tokens * prompt_usd + q.output_tokens * completion_usd


def price(q: Any, usd: Any) -> Any:
    return q.usd_weight * usd


def flakiness(odds: Any, so_far: Any) -> Any:
    """A failure costs a second and half of the job again; `odds` is q / (1 - q) of the node's record."""
    return odds * (1.0 + so_far * 0.5)


def suspicion(q: Any, last_heard_s: Any, suspect_until_s: Any) -> Any:
    return SUSPECT_S * ((last_heard_s <= q.suspect_before_s) | (q.now_s < suspect_until_s))


def parts(q: Any, x: Any) -> Any:
    """The parts in the order of PARTS, none below zero."""
    read = prefill_time(q, x)
    write = decode_time(q, x[ColumnField.STEP_S], x[ColumnField.STEP_TOKEN_S])
    away, wait, cold = x[ColumnField.RTT_S], queue_time(q, x), x[ColumnField.COLD_S]
    memory = memory_wait(q, write, x[ColumnField.KV_BYTES_PER_TOKEN], x[ColumnField.KV_FREE_BYTES])
    prefill = read * x[ColumnField.READ_SLOWER]
    others = slowdown(q, x, read)
    paid = price(q, asked_usd(q, x[ColumnField.PROMPT_USD], x[ColumnField.COMPLETION_USD]))
    so_far = away + wait + cold + memory + prefill + write + others + paid
    flaky = flakiness(x[ColumnField.FAILURE_ODDS], so_far)
    suspect = suspicion(q, x[ColumnField.LAST_HEARD_S], x[ColumnField.SUSPECT_UNTIL_S])
    return away, wait, cold, memory, prefill, write, others, paid, flaky, suspect


def weigh(weight: Any, part: Any) -> Any:
    """The weight is nearly always 1; then the column is not walked."""
    return part if weight == 1.0 else weight * part


def total(q: Any, p: Any) -> Any:
    """The weighted sum of the parts."""
    w = q.weights
    waits = weigh(w[0], p[0]) + weigh(w[1], p[1]) + weigh(w[2], p[2]) + weigh(w[3], p[3])
    own = waits + weigh(w[4], p[4]) + weigh(w[5], p[5])
    return own + weigh(w[6], p[6]) + weigh(w[7], p[7]) + weigh(w[8], p[8]) + weigh(w[9], p[9])


def lower_bound(q: Any, x: Any) -> Any:
    """Some of the parts, quickly. No part is below zero, so the total cannot be lower than this, to the bit."""
    w = q.weights
    read = prefill_time(q, x)
    write = decode_time(q, x[ColumnField.STEP_S], x[ColumnField.STEP_TOKEN_S])
    paid = price(q, asked_usd(q, x[ColumnField.PROMPT_USD], x[ColumnField.COMPLETION_USD]))
    waits = weigh(w[0], x[ColumnField.RTT_S]) + weigh(w[1], queue_time(q, x)) + weigh(w[2], x[ColumnField.COLD_S])
    return waits + weigh(w[4], read * x[ColumnField.READ_SLOWER]) + weigh(w[5], write) + weigh(w[7], paid)


def to_us(cost: Any) -> Any:
    """Costs are compared to the microsecond."""
    return np.floor(cost * 1e6 + 0.5)


def summary(q: Any, p: Any, jitter: Any, x: Any) -> Any:
    """In the order of SUMMARY."""
    first_token_s = p[0] + p[1] + p[2] + p[3] + p[4]
    usd = asked_usd(q, x[ColumnField.PROMPT_USD], x[ColumnField.COMPLETION_USD])
    return total(q, p) + jitter, first_token_s, first_token_s + p[5], usd


# Jitter keeps a burst of equal jobs apart. It is a hash of (seed, match, node), so anyone can recompute a decision.

_MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15
STEP, MIX_1, MIX_2 = np.uint64(_STEP), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
SHIFT_1, SHIFT_2, SHIFT_3, SHIFT_4 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)


def hash_text(text: str) -> int:
    """64 bits of a text."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def jitter_seed(seed: int, match_hash: int) -> int:
    return (match_hash + (seed & _MASK) * _STEP) & _MASK


def hash_fraction(node_hash: Any, seed: Any) -> Any:
    """A number in [0, 1) for one node or for an array of them (splitmix64's mixing)."""
    x = (node_hash ^ seed) + STEP
    x = (x ^ (x >> SHIFT_1)) * MIX_1
    x = (x ^ (x >> SHIFT_2)) * MIX_2
    return ((x ^ (x >> SHIFT_3)) >> SHIFT_4) * (1.0 / (1 << 53))


def hash_fractions(seed: int, match_hash: int, node_hashes: NDArray[np.uint64]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = hash_fraction(node_hashes, np.uint64(jitter_seed(seed, match_hash)))
    return found


COMPILED = (
    queue_time,
    prefill_time,
    decode_time,
    memory_wait,
    slowdown,
    asked_usd,
    price,
    flakiness,
    suspicion,
    weigh,
    parts,
    total,
    lower_bound,
    to_us,
    summary,
    hash_fraction,
)
"""What compiled code uses, each function after those that it calls."""


Sort = Literal["price", "throughput", "latency"]


@dataclass(frozen=True, slots=True)
class Preference:
    """What one request weighs differently from its tier. Raises InvalidField."""

    sort: Sort | None = None
    """By price (as `economy`), by tokens per second or by the first token (both as `fast`, with more weight)."""
    weights: tuple[tuple[str, float], ...] = ()
    """The weight of single parts of the cost, by name; 1 is the usual, 0 ignores the part."""

    def __post_init__(self) -> None:
        if self.sort is not None and self.sort not in get_args(Sort):
            raise InvalidField(f"'sort' is one of {', '.join(get_args(Sort))}.", param="sort")
        for name, weight in self.weights:
            if name not in PARTS:
                raise InvalidField(f"There is no cost {name[:40]!r}. Costs: {', '.join(PARTS)}.", param="weights")
            if not 0.0 <= weight <= WEIGHT_MAX:
                raise InvalidField(f"The weight of {name!r} is a number from 0 to {WEIGHT_MAX:.0f}.", param="weights")


NO_PREFERENCE = Preference()
JITTER = 0.05
EMPHASIS = 4.0
"""The weight of the parts that a request sorts by. The other parts still break ties and spread a burst."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """`usd_weight` is None for a ranking that scores instead of predicting seconds."""

    name: str
    usd_weight: float | None
    part_names: tuple[str, ...]
    jitter: float

    @property
    def unit(self) -> str:
        return "score" if self.usd_weight is None else "s"

    def weights(self, preference: Preference) -> tuple[float, tuple[float, ...]]:
        """Seconds that a dollar is worth, and the weight of each part. A ranking that scores has no preferences."""
        if preference is NO_PREFERENCE or self.usd_weight is None:
            return self.usd_weight or 0.0, UNIT_WEIGHTS
        return _weights(preference, self.usd_weight)


FAST = Ranking("fast", 0.0, PARTS, JITTER)
BALANCED = Ranking("balanced", 1e4, PARTS, JITTER)
ECONOMY = Ranking("economy", 4e4, PARTS, JITTER)
NEURALGRID = Ranking("neuralgrid", None, ("vram", "compute", "cost"), 0.0)
RANKINGS = {ranking.name: ranking for ranking in (FAST, BALANCED, ECONOMY, NEURALGRID)}


@lru_cache(maxsize=1024)
def _weights(preference: Preference, usd_weight: float) -> tuple[float, tuple[float, ...]]:
    usd, emphasised = _sorted_by(preference.sort, usd_weight)
    weights = dict.fromkeys(PARTS, 1.0) | dict.fromkeys(emphasised, EMPHASIS)
    for name, weight in preference.weights:
        weights[name] *= weight
    return usd, tuple(weights.values())


def _sorted_by(sort: Sort | None, usd_weight: float) -> tuple[float, tuple[str, ...]]:
    match sort:
        case None:
            return usd_weight, ()
        case "price":
            return ECONOMY.usd_weight or 0.0, ()
        case "throughput":
            return FAST.usd_weight or 0.0, ("decode",)
        case "latency":
            return FAST.usd_weight or 0.0, UNTIL_FIRST_TOKEN
        case _:
            assert_never(sort)
