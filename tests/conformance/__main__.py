"""`make conformance`: every suite against a fresh network, and the report of it.

python -m tests.conformance [--only NAME] [--report FILE]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.conformance.suites import (
    ENV,
    LANGCHAIN,
    LANGCHAIN_RESPONSES,
    LITELLM,
    OPENAI,
    Result,
    deselected,
    schemathesis,
    schemathesis_openai,
)
from tests.integration.networks import start_network

ALL = (OPENAI, LANGCHAIN, LANGCHAIN_RESPONSES, LITELLM, schemathesis(40), schemathesis_openai(20))
SUITES = {suite.name: suite for suite in ALL}
NODES = 2


def main() -> int:
    parser = argparse.ArgumentParser(prog="make conformance", description=__doc__)
    parser.add_argument("--only", choices=list(SUITES), help="Run this suite alone.")
    parser.add_argument("--report", type=Path, help="Write the results here.")
    given = parser.parse_args()
    names = [given.only] if given.only else list(SUITES)
    with (
        tempfile.TemporaryDirectory() as folder,
        start_network(Path(folder), "--engine=deterministic", f"--nodes={NODES}", env=ENV) as network,
    ):
        results = [SUITES[name].run(network) for name in names]
    for result in results:
        print(_line(result) if result.ok else f"{result.output}\n{_line(result)}")
    if given.report is not None:
        given.report.write_text(_report(results))
    return 0 if all(result.ok for result in results) else 1


def _line(result: Result) -> str:
    counts = ", ".join(f"{count} {name}" for name, count in result.counts.items())
    return f"{'ok    ' if result.ok else 'FAILED'} {result.suite} {result.version}: {counts} in {result.seconds:.0f} s"


def _report(results: list[Result]) -> str:
    rows = [
        f"| {each.suite} | {each.version} | {each.counts.get('passed', 0)} | {each.counts.get('failed', 0)} "
        f"| {each.counts.get('skipped', 0)} | {each.counts.get('deselected', 0)} | {each.seconds:.0f} s |"
        for each in results
    ]
    reasons = [
        f"- **{each.suite}**: {reason} (`{'`, `'.join(tests)}`)"
        for each in results
        for reason, tests in deselected(each.suite)
    ]
    return "\n".join([*_HEAD, *rows, *_FOOT, *reasons, ""])


_HEAD = (
    "# Conformance: what others' suites say",
    "",
    "Made by `make conformance` on two nodes with the deterministic engine. `docs/reference/conformance.md` says what",
    "each suite checks.",
    "",
    "| suite | version | passed | failed | skipped | not run | took |",
    "| --- | --- | --- | --- | --- | --- | --- |",
)
_FOOT = (
    "",
    "Passed, for schemathesis, is the number of requests that it made up; a failed one is one finding.",
    "",
    "## Not run, and why",
    "",
)

if __name__ == "__main__":
    sys.exit(main())
