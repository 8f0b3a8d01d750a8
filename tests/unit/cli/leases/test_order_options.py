from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparewatt.cli.errors import ApiError, CliError, ExitCode
from sparewatt.cli.leases.order_options import OrderDraft, read_draft
from sparewatt.leasing.orders.order_fields import read_order
from tests.unit.leasing.orders.samples import SDL

NAMES = (
    *("file", "image", "serve", "command", "disk_gb", "duration", "count", "near", "max_spend", "egress", "name"),
    *("gpus", "cpus", "memory_gb", "gpu", "region", "max_hourly", "only", "policy"),
)


def draft(**options: Any) -> OrderDraft:
    none: dict[str, Any] = dict.fromkeys(NAMES) | {"env": (), "secrets": (), "ports": ()}
    return read_draft(none | options)


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "order.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def test_flags_make_an_order() -> None:
    made = draft(
        image="a",
        env=("A=1",),
        secrets=("T",),
        ports=(80,),
        gpus=0,
        cpus=2.5,
        duration="2h",
        region="EU,US",
        max_hourly="1.5",
        max_spend="3",
    )
    order = read_order(made.fields)
    assert (order.gpus, order.cpu_milli, order.duration_s) == (0, 2_500, 7_200)
    assert (order.content.env, order.content.secrets, order.content.ports) == ({"A": "1"}, ("T",), (80,))
    assert (order.policy.max_hourly, order.max_spend_uusd) == (1_500_000_000, 3_000_000)
    assert order.policy.region is not None
    assert "US" in order.policy.region


def test_options_go_before_the_file(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        "image: a\nduration: 1h\nenv: {A: old, B: true, C: null}\n"
        "resources: {gpus: 2, cpus: 4}\npolicy: {region: [NO]}\n",
    )
    made = draft(file=file, duration="2h", env=("A=new",), gpus=1, max_hourly="2")
    order = read_order(made.fields)
    assert (order.duration_s, order.gpus, order.cpu_milli) == (7_200, 1, 4_000)
    assert order.content.env == {"A": "new", "B": "true", "C": ""}
    assert (order.policy.region, order.policy.max_hourly) == (frozenset({"NO"}), 2 * 10**9)


@pytest.mark.parametrize("policy", ["policy: 'region=NO'", "policy: {region: [NO]}", "ports: [80]"])
def test_conditions_narrow_what_the_file_says(tmp_path: Path, policy: str) -> None:
    made = draft(file=written(tmp_path, f"image: a\n{policy}\n"), policy="vram_gb>=24", max_hourly="2")
    made.set_policy("only", ["0x" + "1" * 40, "0x" + "2" * 40])
    read = read_order(made.fields).policy
    assert read.vram_gb is not None
    assert (read.region is not None) == (policy != "ports: [80]")
    assert (read.max_hourly, len(read.only or ())) == (2 * 10**9, 2)


def test_a_file_of_another_network_comes_with_its_notes(tmp_path: Path) -> None:
    made = draft(file=written(tmp_path, SDL), duration="2h")
    assert made.format == "Akash SDL"
    assert any("signedBy" in note for note in made.notes)
    assert read_order(made.fields).duration_s == 7_200


@pytest.mark.parametrize("text", ["image: [", "- a", "image: a\nimage: b", "x" * 200_000])
def test_a_bad_file_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(CliError, match=r"order\.yaml") as caught:
        draft(file=written(tmp_path, text))
    assert caught.value.exit_code is ExitCode.USAGE


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="cannot be read"):
        draft(file=tmp_path / "none.yaml")
    (tmp_path / "order.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(CliError, match="UTF-8"):
        draft(file=tmp_path / "order.yaml")


def test_an_order_of_nothing_names_what_to_do() -> None:
    with pytest.raises(CliError, match="--image"):
        draft(duration="2h")


def test_a_bad_policy_beside_conditions_is_refused_here(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="regoin"):
        draft(file=written(tmp_path, "image: a\npolicy: {regoin: EU}\n"), policy="vram_gb>=24")


@pytest.mark.parametrize(
    ("status", "param", "said"),
    [
        (400, "policy.region", ":3: no"),
        (400, "image", ":1: no"),
        (400, "ports", "order.yaml: no"),
        (402, "image", None),
    ],
)
def test_the_gateways_errors_are_found_in_the_file(tmp_path: Path, status: int, param: str, said: str | None) -> None:
    made = draft(file=written(tmp_path, "image: a\npolicy:\n  region: [XX]\n"))
    error = ApiError("no", http_status=status, api_code="c", api_param=param)
    located = made.locate(error)
    assert (located is error) if said is None else (said in located.message)


def test_make_up_installs_what_reads_order_files_in_yaml() -> None:
    locked = (Path(__file__).parents[4] / "requirements.lock").read_text()
    assert "\npyyaml==" in locked
