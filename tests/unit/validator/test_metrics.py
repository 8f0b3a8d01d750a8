"""The page for Prometheus has the names that AVS operators expect, and reads as its format demands."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from sparewatt.protocol.api.validators import PeerStatus, ValidatorStatus
from sparewatt.validator.metrics import RpcUse, metrics_page
from sparewatt.validator.rpc_meter import MethodUse
from tests.unit.validator.test_api import STATUS

SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\]|\\.)*",?)*)\})? (\S+)')


@dataclass
class Page:
    kinds: dict[str, str]
    samples: dict[tuple[str, str], float]

    def value(self, name: str) -> float:
        (value,) = [value for (found, _), value in self.samples.items() if found == name]
        return value


def read(
    status: ValidatorStatus = STATUS, *, is_healthy: bool = True, uses: Any = None, client: str = "geth/v1.2"
) -> Page:
    text = metrics_page(status, RpcUse(client, uses or {}), is_healthy=is_healthy, score=87.5).decode()
    assert text.endswith("\n")
    page = Page({}, {})
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in page.kinds, "a metric has one head"
            page.kinds[name] = kind
        elif not line.startswith("# HELP "):
            match = SAMPLE.fullmatch(line)
            assert match, line
            page.samples[match[1], match[2] or ""] = float(match[3])
    return page


def test_every_sample_belongs_to_a_metric_with_its_kind() -> None:
    page = read(uses={"eth_call": MethodUse()})
    for name, _ in page.samples:
        base = re.sub(r"_(bucket|sum|count)$", "", name)
        assert name in page.kinds or page.kinds.get(base) == "histogram", name


def test_the_names_of_the_specification_are_there() -> None:
    assert {
        "eigen_performance_score",
        "eigen_fees_earned_total",
        "eigen_registered_stakes",
        "eigen_slashing_status",
        "eigen_rpc_request_total",
        "eigen_rpc_request_duration_seconds",
    } == {name for name in read().kinds if name.startswith("eigen_")}


def test_every_metric_is_on_the_reference_page_with_its_kind() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/validator-metrics.md").read_text()
    documented = re.findall(r"^\| `([a-z_]+)` \| ([a-z]+) \|", page, flags=re.MULTILINE)
    assert dict(documented) == read().kinds


def test_the_score_is_that_of_the_votes_and_zero_while_unhealthy() -> None:
    assert read().value("eigen_performance_score") == 87.5
    assert read(is_healthy=False).value("eigen_performance_score") == 0


def test_stake_and_slashing_are_the_registrys() -> None:
    status = msgspec.structs.replace(STATUS, stake_uusd=1_500_000, is_jailed=True)
    page = read(status)
    assert page.value("eigen_registered_stakes") == 1.5
    assert page.value("eigen_slashing_status") == 1
    assert read().value("eigen_slashing_status") == 0


def test_calls_to_the_chain_are_counted_and_timed() -> None:
    use = MethodUse()
    for duration_s in (0.0005, 0.003, 0.003, 9.0):
        use.add(duration_s)
    page = read(uses={"eth_getLogs": use})
    assert page.value("eigen_rpc_request_total") == 4
    buckets = [value for (name, _), value in page.samples.items() if name.endswith("_bucket")]
    assert buckets == [1, 3, 3, 3, 3, 3, 4]
    assert page.value("eigen_rpc_request_duration_seconds_sum") == 9.0065
    assert page.value("eigen_rpc_request_duration_seconds_count") == 4


def test_large_numbers_are_written_in_full() -> None:
    """A counter that is rounded has no rate, and a block of a public chain has eight digits."""
    use = MethodUse()
    use.counts[0] = 12_345_678
    page = read(msgspec.structs.replace(STATUS, block_number=23_456_789), uses={"eth_call": use})
    assert page.value("sparewatt_validator_block") == 23_456_789
    assert page.value("eigen_rpc_request_total") == 12_345_678


def test_calls_are_labelled_with_the_program_of_the_chain_s_node() -> None:
    uses = {"eth_call": MethodUse()}
    for told, label in (("Geth/v1.17.2", "Geth/v1.17.2"), ("", "unknown"), ('a"b\\c', r"a\"b\\c")):
        (labels,) = {labels for name, labels in read(uses=uses, client=told).samples if name.endswith("request_total")}
        assert f'client_version="{label}"' in labels


def test_peers_that_took_the_last_message_are_counted() -> None:
    peers = [
        PeerStatus(vote_key="a", operator="b", url="c", weight=1, is_reachable=up, queued=0, dropped=0)
        for up in (True, False, True)
    ]
    page = read(msgspec.structs.replace(STATUS, peers=peers))
    assert page.value("sparewatt_validator_peers_reachable") == 2
