from __future__ import annotations

from pathlib import Path

import pytest

from sparewatt.core.errors import StartupError
from sparewatt.node.leases.offer_rules import LeaseRules
from sparewatt.node.leases.rules_file import FILE, read_lease_rules, write_lease_rules
from sparewatt.protocol.link.lease_offer import LeaseDiscount, LeasePrice

RULES = LeaseRules(
    prices=(LeasePrice(1, 400_000),),
    discounts=(LeaseDiscount(86_400, 50_000),),
    refused_images=("*/xmrig*",),
    refused_tenants=("0x" + "1" * 40,),
    cpu_milli=4_000,
    egress=False,
)


def test_rules_are_read_as_they_were_written(tmp_path: Path) -> None:
    write_lease_rules(tmp_path / "node", RULES)
    assert read_lease_rules(tmp_path / "node") == RULES


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    assert read_lease_rules(tmp_path) == LeaseRules(longest_s=7 * 86_400, reclaim_s=3_600)


@pytest.mark.parametrize("text", ["", "[]", '{"gpus": -1}', '{"price": 1}', '{"refused_tenants": ["bob"]}', "\xff"])
def test_a_broken_file_says_what_to_do(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_bytes(text.encode("latin-1"))
    with pytest.raises(StartupError, match="Remove it"):
        read_lease_rules(tmp_path)
