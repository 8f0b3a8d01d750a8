"""The hook that refuses long commit subjects (.ci/check_subject.py)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HOOK = Path(__file__).parents[2] / ".ci" / "check_subject.py"


def run_hook(folder: Path, message: str) -> subprocess.CompletedProcess[str]:
    file = folder / "COMMIT_EDITMSG"
    file.write_text(message, encoding="utf-8")
    return subprocess.run([sys.executable, HOOK, file], check=False, capture_output=True, text=True)


@pytest.mark.parametrize("message", ["x" * 72, f"# a comment\n\nShort\n\n{'A long body. ' * 20}\n"])
def test_a_subject_of_at_most_72_characters_is_accepted(tmp_path: Path, message: str) -> None:
    assert run_hook(tmp_path, message).returncode == 0


@pytest.mark.parametrize(
    ("message", "reason"), [("x" * 73, "73 characters, 1 more"), ("# only a comment\n", "no subject")]
)
def test_a_long_or_missing_subject_is_refused_with_the_reason(tmp_path: Path, message: str, reason: str) -> None:
    done = run_hook(tmp_path, message)
    assert done.returncode == 1
    assert reason in done.stderr
