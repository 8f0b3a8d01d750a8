"""`sparewatt validator run` with rounds of a second and more, for tests that count rounds on a busy machine.

    python -m tests.integration.validator.long_rounds validator run …

A round of the local network takes 0.3 s, which several processes on one processor may miss without any fault. ROUND_MS
in the environment makes them longer still.
"""

from __future__ import annotations

import os

from sparewatt.cli.main import main
from sparewatt.market.match.model import MatchTiming
from sparewatt.validator import process

ROUND_MS = int(os.environ.get("ROUND_MS", "1000"))


def lengthen() -> None:
    assert hasattr(process, "MatchTiming")
    setattr(process, "MatchTiming", lambda: MatchTiming(round_ms=ROUND_MS))  # noqa: B010 (mypy minds an assignment)


if __name__ == "__main__":
    lengthen()
    main()
