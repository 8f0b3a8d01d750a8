"""The node as it is, but one that dials again within a second: these tests kill its gateway every few seconds.

python -m tests.integration.eager_node node join URL …
"""

from __future__ import annotations

from sparewatt.cli.main import main
from sparewatt.node import agent

if __name__ == "__main__":
    agent.BACKOFF_MAX_S = 1.0
    main()
