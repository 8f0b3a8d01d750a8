from __future__ import annotations

from typing import Any

import pytest

from sparewatt.core.errors import BadRequest, InvalidField, UnknownField
from sparewatt.leasing.orders.order_fields import COUNT_MAX, read_duration, read_order
from sparewatt.policy.model import NameFilter, Range
from sparewatt.protocol.contracts.lease_content import write_content

FULL = {
    "name": "trainer",
    "image": "ghcr.io/me/train:1.2@sha256:" + "ab" * 32,
    "command": ["python", "train.py", "--lr", 0.1],
    "env": {"EPOCHS": 3, "DEBUG": False, "NAME": "é", "EMPTY": None},
    "secrets": ["HF_TOKEN"],
    "ports": [8080, 22],
    "disk_gb": 50,
    "resources": {"gpus": 2, "cpus": 1.5, "memory_gb": "1.073741824"},
    "duration": "12h",
    "count": 3,
    "near": "de",
    "policy": {"gpu": ["a100"], "region": ["EU"], "max_hourly": 3},
    "max_spend": "12.50",
    "egress": "none",
}


def refused(**fields: Any) -> InvalidField | BadRequest:
    with pytest.raises(BadRequest) as caught:
        read_order({"image": "a"} | fields)
    return caught.value


def test_every_field_is_read() -> None:
    order = read_order(FULL)
    assert order.name == "trainer"
    assert order.content.command == ("python", "train.py", "--lr", "0.1")
    assert order.content.env == {"EPOCHS": "3", "DEBUG": "false", "NAME": "é", "EMPTY": ""}
    assert (order.content.secrets, order.content.ports) == (("HF_TOKEN",), (8080, 22))
    assert (order.gpus, order.cpu_milli, order.memory_mib, order.disk_mib) == (2, 1_500, 1_024, 47_684)
    assert (order.duration_s, order.count, order.has_egress) == (43_200, 3, False)
    assert order.max_spend_uusd == 12_500_000
    assert order.policy.gpu == NameFilter(allowed=frozenset({"a100"}))
    assert (order.policy.near, order.policy.gpu_count) == ("DE", Range(low=2))


def test_an_image_is_enough() -> None:
    order = read_order({"image": "docker.io/library/nginx:1.27"})
    assert (order.name, order.gpus, order.count, order.duration_s) == ("nginx", 1, 1, 3_600)
    assert (order.cpu_milli, order.memory_mib, order.has_egress) == (1_000, 1_908, True)
    assert order.max_spend_uusd is None


@pytest.mark.parametrize(
    ("policy", "resources", "gpus"),
    [
        ({}, {"gpus": 0}, 0),
        ("gpu_count=0", {}, 0),
        ("gpu_count>=4", {}, 4),
        ("gpu_count=2", {"gpus": 2}, 2),
        ({}, {}, 1),
    ],
)
def test_the_number_of_gpus_is_said_once(policy: Any, resources: Any, gpus: int) -> None:
    order = read_order({"image": "a", "policy": policy, "resources": resources})
    assert (order.gpus, order.policy.gpu_count) == (gpus, Range(low=gpus))


def test_a_command_in_one_line_is_split_as_a_shell_would() -> None:
    assert read_order({"image": "a", "command": "sh -c 'a b'"}).content.command == ("sh", "-c", "a b")
    assert refused(command="sh 'a").param == "command"


def test_env_may_be_a_list() -> None:
    assert read_order({"image": "a", "env": ["A=b=c", "B="]}).content.env == {"A": "b=c", "B": ""}
    assert refused(env=["A=1", "A=2"]).param == "env"
    assert refused(env=["A"]).param == "env"
    assert refused(env=[{"A": "1"}]).param == "env"


LIES: list[tuple[str, dict[str, Any], str]] = [
    ("no image", {"image": ""}, "image"),
    ("an image with a line break", {"image": "nginx\n--privileged"}, "image"),
    ("an image with an escape", {"image": "a\x1b[2Jb"}, "image"),
    ("an image that is an option", {"image": "--privileged"}, "image"),
    ("a long image", {"image": "a" * 513}, "image"),
    ("an image that is a list", {"image": ["a"]}, "image"),
    ("100,000 variables", {"env": {f"A{number}": "" for number in range(10**5)}}, "env"),
    ("a variable's name with =", {"env": {"A=B": "1"}}, "env"),
    ("a variable's value with NUL", {"env": {"A": "\x00"}}, "env"),
    ("a variable's value that is a list", {"env": {"A": [1]}}, "env"),
    ("env that is a number", {"env": 3}, "env"),
    ("100,000 arguments", {"command": ["x"] * 10**5}, "command"),
    ("a port below", {"ports": [-1]}, "ports"),
    ("a port above", {"ports": [65_536]}, "ports"),
    ("a port that is text", {"ports": ["http"]}, "ports"),
    ("a port twice", {"ports": [80, 80]}, "ports"),
    ("a secret with a value", {"secrets": ["TOKEN=abc"]}, "secrets"),
    ("a secret that all can read", {"secrets": ["A"], "env": {"A": "1"}}, "secrets"),
    ("secrets as a mapping", {"secrets": {"A": "value"}}, "secrets"),
    ("a million leases", {"count": 10**6}, "count"),
    ("no lease", {"count": 0}, "count"),
    ("minus one lease", {"count": -1}, "count"),
    ("half a lease", {"count": 1.5}, "count"),
    ("more than fits", {"count": COUNT_MAX + 1}, "count"),
    ("a huge number", {"count": 10**5_000}, "count"),
    ("a long number", {"disk_gb": "1" * 5_000}, "disk_gb"),
    ("a negative disk", {"disk_gb": -1}, "disk_gb"),
    ("no disk", {"disk_gb": 0}, "disk_gb"),
    ("an endless disk", {"disk_gb": float("inf")}, "disk_gb"),
    ("no number", {"disk_gb": float("nan")}, "disk_gb"),
    ("true", {"disk_gb": True}, "disk_gb"),
    ("negative GPUs", {"resources": {"gpus": -1}}, "resources.gpus"),
    ("negative processors", {"resources": {"cpus": -0.5}}, "cpus"),
    ("no memory", {"resources": {"memory_gb": 0}}, "memory_gb"),
    ("resources as a list", {"resources": [1]}, "resources"),
    ("two numbers of GPUs", {"resources": {"gpus": 1}, "policy": "gpu_count=2"}, "resources.gpus"),
    ("a range of GPUs", {"policy": "gpu_count>=2 gpu_count<=4"}, "policy.gpu_count"),
    ("two places", {"near": "de", "policy": "near=us"}, "near"),
    ("nowhere", {"near": "atlantis"}, "near"),
    ("a name with a slash", {"name": "a/b"}, "name"),
    ("a long name", {"name": "a" * 64}, "name"),
    ("nothing to spend", {"max_spend": 0}, "max_spend"),
    ("less than nothing to spend", {"max_spend": -3}, "max_spend"),
    ("a spend of seven decimals", {"max_spend": "0.0000001"}, "max_spend"),
    ("a spend that is no number", {"max_spend": "lots"}, "max_spend"),
    ("a spend that is a list", {"max_spend": [1]}, "max_spend"),
    ("egress to somewhere", {"egress": "lan"}, "egress"),
    ("a typo in the policy", {"policy": {"regoin": "EU"}}, "policy.regoin"),
    ("a policy that is a number", {"policy": 3}, "policy"),
]


@pytest.mark.parametrize(("fields", "param"), [each[1:] for each in LIES], ids=[each[0] for each in LIES])
def test_a_bad_field_is_refused_by_its_name(fields: dict[str, Any], param: str) -> None:
    assert refused(**fields).param == param


def test_an_unknown_field_is_named_with_the_nearest() -> None:
    error = refused(duraton="1h")
    assert isinstance(error, UnknownField)
    assert "'duration'" in error.message
    assert refused(resources={"ram": 1}).param == "resources.ram"
    with pytest.raises(InvalidField):
        read_order([FULL])


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("90m", 5_400),
        ("1h30m", 5_400),
        ("2min", 120),
        ("7d", 604_800),
        ("1.5 hours", 5_400),
        (90, 90),
        ("90", 90),
        (None, 3_600),
    ],
)
def test_durations_have_many_spellings(value: Any, seconds: int) -> None:
    assert read_duration(value) == seconds


@pytest.mark.parametrize(
    "value", ["59s", 59, "367d", "1y", "h", "-1h", "1h x", True, [1], "9" * 60, float("inf"), 1e30]
)
def test_other_durations_are_refused(value: Any) -> None:
    with pytest.raises(InvalidField) as caught:
        read_duration(value)
    assert caught.value.param == "duration"


def test_two_orders_are_told_apart_by_everything_that_they_ask() -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"name": "other"},
        {"image": "b"},
        {"env": {}},
        {"duration": "13h"},
        {"count": 2},
        {"max_spend": "13"},
        {"policy": {"gpu": ["a100"], "region": ["EU"], "max_hourly": 4}},
        {"egress": "public"},
        {"disk_gb": 51},
    ]
    hashes = {read_order(FULL | change).asked_hash() for change in changes}
    assert len(hashes) == len(changes)
    assert read_order(FULL).asked_hash() == read_order(dict(reversed(FULL.items())) | {"duration": "720m"}).asked_hash()


def test_a_way_to_the_gateway_is_in_the_document_only_if_it_is_ordered() -> None:
    wanted = read_order({"image": "a", "gateway": True}).content
    assert wanted.gateway is True
    assert '"gateway":true' in write_content(wanted)
    for fields in ({}, {"gateway": False}):
        assert "gateway" not in write_content(read_order({"image": "a"} | fields).content)


@pytest.mark.parametrize("fields", [{"gateway": True, "egress": "none"}, {"gateway": "yes"}, {"gateway": 1.5}])
def test_a_way_to_the_gateway_needs_egress_and_is_said_plainly(fields: dict[str, Any]) -> None:
    assert refused(**fields).param == "gateway"
