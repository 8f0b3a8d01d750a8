"""What a shortlist costs in quality: its pick compared with the best of all nodes, while jobs arrive, run and end.

    python -m bench.shortlist [--nodes 100000] [--jobs 2000] [--rate 1000]

Every job is reserved where the shortlist sends it, so that the list becomes stale as in a gateway.
"""

from __future__ import annotations

import argparse
import heapq
import random
import statistics
from collections.abc import Sequence

from sparewatt.core.ids import MatchId
from sparewatt.inference.matcher import kernel
from sparewatt.inference.matcher.columns import NO_POSITIONS
from sparewatt.inference.matcher.formula import BALANCED, Ranking
from sparewatt.inference.matcher.match import make_query, match
from sparewatt.inference.matcher.model import MatchContext, MatchJob
from sparewatt.inference.matcher.node_row import HealthRules
from sparewatt.inference.matcher.reservation import Reservation
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.testing.matcher_timing import MODEL, NOW_S, make_table

SAME = 1e-9
RULES = HealthRules(heartbeat_s=1e6)
"""There are no heartbeats: only this gateway's own jobs change the table."""
OUTPUT_TOKENS = (200, 200, 200, 64)
"""The typical length, which a gateway expects of most jobs; some requests allow less."""
PLAIN = Ranking("plain", BALANCED.usd_weight, BALANCED.part_names, 0.0)
"""Without the random part of the score, which would favour the pick from more nodes."""


def best_cost_s(job: MatchJob, table: NodeTable, at: MatchContext) -> float:
    entries = table.columns_of(MODEL)
    if entries is None:
        raise SystemExit("The table is empty.")
    asked = make_query(job, at, ranking=PLAIN, seed=1)
    return float(kernel.rank(asked, entries, NO_POSITIONS, NO_POSITIONS, k=8).costs[0, 0])


def regrets(n_nodes: int, n_jobs: int, rate: float) -> list[float]:
    """By job: how much more the pick costs than the best of all, as a share of the best."""
    chance = random.Random(1)  # noqa: S311 (jobs, not secrets)
    table, now_s = make_table(n_nodes), NOW_S
    running: list[tuple[float, int, Reservation]] = []
    """When a first token or an end is due."""
    found = []
    for number in range(n_jobs):
        now_s += chance.expovariate(rate)
        while running and running[0][0] <= now_s:
            at_s, _, held = heapq.heappop(running)
            if held.reading_prompt:
                table.note_first_token(held, now_s=at_s)
            else:
                table.release(held, now_s=at_s)
        prompt, output = int(chance.lognormvariate(6.2, 1.2)) + 1, chance.choice(OUTPUT_TOKENS)
        job = MatchJob(MatchId(f"m{number}"), MODEL, prompt, output)
        at = MatchContext(now_s, RULES)
        picked = match(job, table, at, ranking=PLAIN, seed=1).ranked[0]
        found.append(picked.cost / best_cost_s(job, table, at) - 1.0)
        held = table.reserve(picked.node_id, job, now_s=now_s)
        for order, due_s in enumerate((picked.predicted_ttft_s, picked.predicted_finish_s)):
            heapq.heappush(running, (now_s + due_s, 2 * number + order, held))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--rate", type=float, default=1000.0, help="jobs per second")
    options = parser.parse_args(arguments)
    print(line(options.nodes, n_jobs=options.jobs, rate=options.rate), end="")


def line(n_nodes: int, *, n_jobs: int, rate: float) -> str:
    found = sorted(regrets(n_nodes, n_jobs, rate))
    same = sum(regret < SAME for regret in found) / len(found)
    shares = (same, statistics.median(found), statistics.mean(found), found[int(len(found) * 0.99)])
    return f"| {n_nodes:,} | {rate:,.0f} | " + " | ".join(f"{share:.1%}" for share in shares) + " |\n"


if __name__ == "__main__":
    main()
