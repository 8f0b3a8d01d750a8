"""Every revert reason of the contracts is expected by some test, and every assert has a reason."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IN_CONTRACTS = re.compile(r'assert .*?, "([A-Z_]+)"', re.DOTALL)
IN_TESTS = re.compile(r'(?:refused\(|, )"([A-Z_]+)"')


def found(pattern: re.Pattern[str], paths: Iterable[Path]) -> set[str]:
    return {reason for path in paths for reason in pattern.findall(path.read_text())}


def test_every_reason_is_hit() -> None:
    stated = found(IN_CONTRACTS, (ROOT / "contracts").rglob("*.vy"))
    asked_for = found(IN_TESTS, (ROOT / "tests" / "evm").glob("test_*.py"))
    assert len(stated) > 100
    assert stated - asked_for == set()


def test_no_contract_refuses_without_a_reason() -> None:
    for path in (ROOT / "contracts").rglob("*.vy"):
        bare = [line for line in path.read_text().splitlines() if re.match(r'\s+assert (?!.*"[A-Z_]+")', line)]
        assert bare == [], path.name
