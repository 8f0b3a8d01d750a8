"""How well checks of answers tell honest nodes from others: `make bench-checks`.

llama.cpp answers prompts as the network draws them, at temperature 0: the same weights at different thread counts,
batch sizes and numbers of answers at once, which is what honest nodes differ in; then other quantizations of the model
and a weaker one (`bench/requantize.py`), which is what dishonest nodes would run instead. The shipped rules compare
them. Answers are kept in a file, so that a run can be continued. `--rates` writes what the simulator uses: how often an
answer differs too early, of the worst honest server and of the weaker model.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path

from bench.paid_tokens import ANSWER_S, MODEL, wait_until_up, weights

from sparewatt.trust.checks.comparison import compare, pieces_of
from sparewatt.trust.checks.model import CheckResult
from sparewatt.trust.checks.probe_prompts import SEED_BYTES, draw_probe
from sparewatt.trust.checks.standing import CheckRecord, CheckState, next_record, settled_result
from sparewatt.trust.checks.tolerance import NO_PAIRS, is_too_early

TRUE = "Q4_1"
OTHERS = ("F16", "Q8_0", "Q4_0", "weak")


@dataclass(frozen=True)
class Setup:
    """How one server runs."""

    quantization: str
    threads: int = 1
    batch: int = 128
    slots: int = 1

    @property
    def name(self) -> str:
        return f"{self.quantization}, {self.threads} threads, batch {self.batch}, {self.slots} at once"


HONEST = (
    Setup(TRUE),
    Setup(TRUE, threads=2),
    Setup(TRUE, batch=16),
    Setup(TRUE, batch=512),
    Setup(TRUE, slots=4),
    Setup(TRUE, threads=2, batch=32, slots=4),
)
SETUPS = (*HONEST, *(Setup(name, threads=2, slots=4) for name in OTHERS))


@dataclass(frozen=True)
class CheckedAnswer:
    setup: str
    number: int
    text: str


# answers of real servers


def collect(directory: Path, prompts: int) -> list[CheckedAnswer]:
    path = directory / "answers.jsonl"
    have = [CheckedAnswer(**json.loads(line)) for line in path.open()] if path.exists() else []
    with path.open("a") as file:
        for setup in SETUPS:
            known = {answer.number for answer in have if answer.setup == setup.name}
            missing = [number for number in range(prompts) if number not in known]
            for answer in _answers_of(weights(directory, setup.quantization), setup, missing) if missing else ():
                have.append(answer)
                file.write(json.dumps(asdict(answer), ensure_ascii=False) + "\n")
                file.flush()
    return [answer for answer in have if answer.number < prompts]


def _answers_of(model: Path, setup: Setup, numbers: Sequence[int]) -> Iterator[CheckedAnswer]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "sparewatt.node.backends.llama_server", str(model), "--alias", MODEL]
    options = {"port": port, "slots": setup.slots, "context": 1024, "threads": setup.threads, "batch": setup.batch}
    flags = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    server = subprocess.Popen([*command, *flags])
    try:
        wait_until_up(port, server)
        with ThreadPoolExecutor(setup.slots) as pool:
            yield from pool.map(lambda number: CheckedAnswer(setup.name, number, _ask(port, number)), numbers)
    finally:
        server.terminate()
        server.wait()


def seed_of(number: int) -> bytes:
    return hashlib.sha256(b"bench-checks %d" % number).digest()[:SEED_BYTES]


def _ask(port: int, number: int) -> str:
    body = draw_probe(seed_of(number)).request(MODEL) | {"stream": False}
    body.pop("stream_options", None)
    url, headers = f"http://127.0.0.1:{port}/v1/chat/completions", {"content-type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=ANSWER_S) as reply:
        text: str = json.loads(reply.read())["choices"][0]["message"]["content"]
    return text


# the shipped rules over them

Texts = dict[str, dict[int, tuple[str, ...]]]


@dataclass
class PairFigures:
    """One kind of pair over all prompts."""

    checks: int = 0
    pieces: int = 0
    differences: int = 0
    early: int = 0
    """Differed too early on one prompt."""
    failed: int = 0
    found_after: int | None = None
    """Checks until a node that is compared so would be barred."""

    @property
    def failed_share(self) -> float:
        return self.failed / self.checks if self.checks else 0.0


def figures_of(one: dict[int, tuple[str, ...]], other: dict[int, tuple[str, ...]], *, hazard: float) -> PairFigures:
    """A node that answers as `other`, checked against `one`, prompt after prompt."""
    figures, record, numbers = PairFigures(), CheckRecord(), sorted(one.keys() & other.keys())
    for number, following in zip(numbers, [*numbers[1:], numbers[0]], strict=True):
        comparison, again = (compare(other[each], one[each]) for each in (number, following))
        is_early = is_too_early(comparison, hazard=hazard)
        figures.checks += 1
        figures.pieces += comparison.agreed
        figures.differences += comparison.differs
        figures.early += is_early
        comparison = again if is_early else comparison  # a second prompt has to confirm it
        is_failed = is_early and is_too_early(again, hazard=hazard)
        result = CheckResult.FAILED if is_failed else CheckResult.PASSED
        result = settled_result(record, result, comparison, hazard=hazard)
        figures.failed += result is CheckResult.FAILED
        record, _ = next_record(record, "probe", result, comparison, unix_s=0.0)
        if record.state is CheckState.BARRED:
            figures.found_after = figures.found_after or figures.checks
            record = CheckRecord()
    return figures


def learned_hazard(texts: Texts) -> float:
    """From all pairs of honest servers."""
    pairs = NO_PAIRS
    for one, other in combinations((setup.name for setup in HONEST), 2):
        for number in texts[one].keys() & texts[other].keys():
            pairs = pairs.plus(compare(texts[one][number], texts[other][number]))
    return pairs.hazard


def report(texts: Texts) -> tuple[str, dict[str, float]]:
    first, hazards = texts[HONEST[0].name], {"as shipped": NO_PAIRS.hazard, "learned": learned_hazard(texts)}
    shipped, learned = (f"1 in {1 / hazards[name]:.0f}" for name in ("as shipped", "learned"))
    told = (
        f"`make bench-checks`: {len(first)} prompts as the network draws them, at temperature 0, on llama.cpp with a "
        f"model of 135 M weights. Each server's answers are compared with those of {HONEST[0].name}. An honest node is "
        f"granted a chance to differ of {shipped} per piece before anything was learned, and of {learned} after the "
        "honest pairs below. A check fails if a second prompt confirms it."
    )
    lines = [
        "# Checked answers",
        "",
        told,
        "",
        "| answers of | agree on | differ | differ too early | failed, at first | failed, learned | barred after |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    totals = {"honest": [0, 0], "other": [0, 0]}
    early: dict[str, float] = {}
    for setup in SETUPS[1:]:
        by = {name: figures_of(first, texts[setup.name], hazard=hazard) for name, hazard in hazards.items()}
        lines.append(_row(setup, by["as shipped"], by["learned"]))
        total = totals["honest" if setup in HONEST else "other"]
        total[0] += by["learned"].failed
        total[1] += by["learned"].checks
        early[setup.name] = by["as shipped"].early / max(1, by["as shipped"].checks)
    rates = {"honest": max(early[setup.name] for setup in HONEST[1:]), "other": early[SETUPS[-1].name]}
    misses = 1 - _share(totals["other"])
    alarms, checks = totals["honest"]
    summary = (
        f"False alarms: {alarms} of {checks} checks of honest servers. Misses: {misses:.1%} of single checks "
        "of the others, which is why a node is checked more than once."
    )
    lines += ["", summary]
    return "\n".join(lines) + "\n", rates


def _share(counts: list[int]) -> float:
    return counts[0] / counts[1] if counts[1] else 0.0


def _row(setup: Setup, shipped: PairFigures, learned: PairFigures) -> str:
    mean = learned.pieces / learned.checks if learned.checks else 0.0
    found = "never" if learned.found_after is None else f"{learned.found_after} checks"
    cells = (
        setup.name,
        f"{mean:.1f} pieces",
        f"{learned.differences / max(1, learned.checks):.0%}",
        f"{learned.early / max(1, learned.checks):.1%}",
        f"{shipped.failed_share:.1%}",
        f"{learned.failed_share:.1%}",
        found,
    )
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--directory", type=Path, default=Path(".bench/checks"))
    parser.add_argument("--report", type=Path)
    parser.add_argument("--rates", type=Path)
    given = parser.parse_args()
    given.directory.mkdir(parents=True, exist_ok=True)
    texts: Texts = {}
    for answer in collect(given.directory, given.prompts):
        texts.setdefault(answer.setup, {})[answer.number] = pieces_of(answer.text)
    text, rates = report(texts)
    print(text)
    if given.report is not None:
        given.report.write_text(text)
    if given.rates is not None:
        rows = [f"{who},{share:.4f}" for who, share in rates.items()]
        given.rates.write_text("\n".join(("who,differs_early", *rows)) + "\n")


if __name__ == "__main__":
    main()
