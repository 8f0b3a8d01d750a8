from __future__ import annotations

import stat
from pathlib import Path

import pytest

from sparewatt.core.address_rules import NOT_PUBLIC_V4
from sparewatt.node.leases.runtime.egress_table import AGENT_PORT, TABLE, NftEgressTable, TableRefused, table_text


def rules(chain: str) -> list[str]:
    _, _, rest = table_text().partition(f"chain {chain} {{")
    return [line.strip() for line in rest.partition("}\n  ")[0].splitlines() if line.strip() not in ("", "}")]


def test_the_table_is_replaced_in_one_step_and_is_ours_by_name() -> None:
    assert table_text().splitlines()[:3] == [
        f"table inet {TABLE}",
        f"delete table inet {TABLE}",
        f"table inet {TABLE} {{",
    ]


def test_nothing_of_a_lease_reaches_the_host_but_replies_and_the_agents_port() -> None:
    assert rules("to_host")[1:] == [
        'iifname != "swl*" accept',
        "ct state established,related accept",
        f'iifname "swlg-*" fib daddr . iif type local tcp dport {AGENT_PORT} accept',
        "counter drop",
    ]


def test_what_is_not_public_is_dropped_and_nobody_else_gets_in() -> None:
    text = rules("through_host")
    assert text.index('oifname "swl*" counter drop') < text.index('iifname != "swl*" accept')
    assert text.index('iifname != "swl*" accept') < text.index("meta nfproto ipv6 counter drop")
    assert 'iifname "swln-*" counter drop' in text
    assert all(str(network) in text[-1] for network in NOT_PUBLIC_V4)


def fake_nft(folder: Path, script: str) -> str:
    path = folder / "nft"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


async def test_a_table_that_stands_is_not_installed_again_and_one_that_changed_is(tmp_path: Path) -> None:
    rules_file, calls = tmp_path / "rules", tmp_path / "calls"
    script = (
        f'case "$1" in -f) cat > {rules_file}; echo install >> {calls};; '
        f"delete) rm {rules_file};; *) cat {rules_file};; esac"
    )
    table = NftEgressTable(fake_nft(tmp_path, script))
    await table.hold()
    await table.hold()
    assert calls.read_text().split() == ["install"]
    assert rules_file.read_text() == table_text()
    rules_file.write_text("table inet sparewatt_leases {}")
    await table.hold()
    rules_file.unlink()
    await table.hold()
    assert calls.read_text().split() == ["install"] * 3
    await table.remove()
    assert not rules_file.exists()
    await table.remove()


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo 'Error: Could not process rule: Operation not permitted' >&2; exit 1", "not permitted"),
        ("exit 3", "status 3"),
        ("exit 0", "does not list it"),
    ],
)
async def test_a_table_that_cannot_be_installed_says_why(tmp_path: Path, script: str, says: str) -> None:
    with pytest.raises(TableRefused, match=says):
        await NftEgressTable(fake_nft(tmp_path, script)).hold()


async def test_without_nft_there_is_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparewatt.node.leases.runtime.egress_table.shutil.which", lambda *_, **__: None)
    with pytest.raises(TableRefused, match="not installed"):
        await NftEgressTable().hold()
