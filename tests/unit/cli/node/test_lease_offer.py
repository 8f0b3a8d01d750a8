from __future__ import annotations

from typing import Any

import pytest

from sparewatt.cli.node.lease_offer import describe_containers


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (None, "not tried yet"),
        (
            {"limits": False, "troubles": [{"what": "neither is installed", "remedy": "x"}]},
            "none: neither is installed ('sparewatt node doctor' says more)",
        ),
        (
            {"limits": True, "egress": True, "disk_kind": 0, "engine": "podman 4.3.1"},
            "podman 4.3.1, public addresses, the disk is watched",
        ),
        (
            {"limits": True, "egress": False, "disk_kind": 1, "engine": "docker 27"},
            "docker 27, no network, the disk has quotas",
        ),
    ],
)
def test_what_containers_can_do_is_one_line(found: dict[str, Any] | None, text: str) -> None:
    assert describe_containers(found) == text
