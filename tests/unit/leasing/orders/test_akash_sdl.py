from __future__ import annotations

from typing import Any

import pytest

from sparewatt.core.errors import InvalidField, UnsupportedParameter
from sparewatt.leasing.orders.akash_sdl import read_sdl
from sparewatt.leasing.orders.order_fields import LeaseOrder, read_order
from sparewatt.leasing.orders.order_file import ORDER_DOCUMENT
from sparewatt.leasing.orders.terms import filters_of
from sparewatt.policy.document_file import load_document
from sparewatt.policy.model import NameFilter, Range
from tests.unit.leasing.orders.samples import SDL


def document(old: str = "", new: str = "") -> dict[str, Any]:
    assert old in SDL
    loaded: dict[str, Any] = load_document(SDL.replace(old, new) if old else SDL, ORDER_DOCUMENT)
    return loaded


def test_what_it_says_is_translated() -> None:
    translated = read_sdl(document())
    order = read_order(translated.fields)
    assert (order.name, order.count, order.content.image) == ("web", 3, "docker.io/me/model:1")
    assert order.content.command == ("sh", "-c", "serve --port 8000")
    assert (order.content.env, order.content.ports) == ({"MODEL": "small"}, (8000,))
    assert (order.gpus, order.cpu_milli, order.memory_mib, order.disk_mib) == (2, 500, 2_048, 1_536)
    assert order.policy.gpu == NameFilter(allowed=frozenset({"a100", "h100"}))
    assert order.policy.vram_gb == Range(low=80)
    assert order.policy.region == frozenset({"US"})


@pytest.mark.parametrize(
    "left_out", ["expose.as", "expose.to.global", "signedBy", "pricing", "attributes.host", "duration"]
)
def test_what_is_left_out_is_named(left_out: str) -> None:
    assert [note for note in read_sdl(document()).notes if left_out in note]


def order_of(old: str, new: str) -> tuple[LeaseOrder, list[str]]:
    translated = read_sdl(document(old, new))
    return read_order(translated.fields), translated.notes


@pytest.mark.parametrize(
    ("size", "mib"), [("16gi", 16_384), ("2gb", 1_908), ("1Ti", 1_048_576), ("512MI", 512), ("1G", 954), ("1e", None)]
)
def test_sizes_are_read_in_upper_and_lower_case(size: str, mib: int | None) -> None:
    if mib is None:
        with pytest.raises(InvalidField):
            order_of("{size: 2Gi}", f"{{size: {size}}}")
        return
    assert order_of("{size: 2Gi}", f"{{size: {size}}}")[0].memory_mib == mib


def test_a_disk_that_outlives_its_container_is_ordered_with_a_warning() -> None:
    """On Akash, too, it ends with the lease and with a change of the provider."""
    order, notes = order_of("- size: 1Gi", "- {size: 1Gi, attributes: {persistent: true, class: beta3}}")
    assert order.disk_mib == 1_536
    assert [note for note in notes if note.startswith("WARNING 'storage.attributes.persistent'")]
    assert [note for note in notes if "beta3" in note]


def test_a_port_under_two_names_is_one_port() -> None:
    order, notes = order_of("- port: 8000", "- port: 8000\n        as: 8080\n      - port: 9000\n      - port: 8000")
    assert order.content.ports == (8000, 9000)
    assert len([note for note in notes if "expose.as" in note]) == 1


def test_a_variable_without_a_value_is_empty() -> None:
    order, notes = order_of("- MODEL=small", "- MODEL=small\n      - UPLOAD")
    assert order.content.env == {"MODEL": "small", "UPLOAD": ""}
    assert [note for note in notes if "UPLOAD" in note]


def test_the_usual_processors_may_be_asked_for() -> None:
    assert order_of("{units: 500m}", "{units: 1, attributes: {arch: amd64}}")[0].cpu_milli == 1_000


@pytest.mark.parametrize(
    ("name", "allowed", "vram_gb"),
    [
        ("rtx3090Ti", "rtx-3090-ti", 80),
        ("rtx4070tisuper", "rtx-4070-ti-super", 80),
        ("titanrtx", "titan-rtx", 80),
        ("a100-sxm-40g", "a100", 40),
        ("a100-80gb", "a100", 80),
        ("a100-pcie-40g", "a100", 40),
    ],
)
def test_cards_go_by_the_names_of_other_networks(name: str, allowed: str, vram_gb: int) -> None:
    order, _ = order_of("- model: h100", f"- model: {name}")
    assert order.policy.gpu == NameFilter(allowed=frozenset({"a100", allowed}))
    assert order.policy.vram_gb == Range(low=vram_gb)


def test_a_card_that_the_market_does_not_know_is_left_out_if_another_is_known() -> None:
    order, notes = order_of("- model: h100", "- model: k80")
    assert order.policy.gpu == NameFilter(allowed=frozenset({"a100"}))
    assert [note for note in notes if "k80" in note]
    none, _ = order_of("- model: a100\n                  ram: 80Gi\n                - model: h100", "- model: k80")
    with pytest.raises(InvalidField, match="k80"):
        filters_of(none)


def test_a_file_without_gpus_orders_none() -> None:
    text = document()
    del text["profiles"]["compute"]["web"]["resources"]["gpu"]
    order = read_order(read_sdl(text).fields)
    assert (order.gpus, order.policy.gpu) == (0, None)


def test_a_vendor_alone_stands_for_its_models() -> None:
    gpus = document()
    gpus["profiles"]["compute"]["web"]["resources"]["gpu"]["attributes"]["vendor"] = {"nvidia": None}
    allowed = read_order(read_sdl(gpus).fields).policy.gpu
    assert allowed is not None
    assert allowed.admit("rtx-4090")
    assert not allowed.admit("mi300x")
    gpus["profiles"]["compute"]["web"]["resources"]["gpu"]["attributes"]["vendor"] = {"matrox": None}
    with pytest.raises(InvalidField, match="matrox"):
        read_sdl(gpus)


MEANING = [
    ("a second service", "services:\n  web:", "services:\n  db: {image: postgres}\n  web:", "services"),
    ("a second placement", "    dcloud: {profile", "    other: {profile: web}\n    dcloud: {profile", "deployment.web"),
    ("UDP", "        as: 80", "        proto: udp", "expose"),
    ("an address of its own", "- global: true", "- ip: mine", "expose"),
    ("a registry's password", "    command: [sh, -c]", "    credentials: {password: x}", "credentials"),
    ("another processor", "cpu: {units: 500m}", "cpu: {units: 1, attributes: {arch: arm64}}", "cpu"),
    ("a processor of a model", "{units: 500m}", "{units: 1, attributes: {arch: {arm64: [{model: m3}]}}}", "cpu"),
    ("endpoints", 'version: "2.0"', 'version: "2.0"\nendpoints: {mine: {kind: ip}}', "endpoints"),
]


@pytest.mark.parametrize(("old", "new", "param"), [each[1:] for each in MEANING], ids=[each[0] for each in MEANING])
def test_what_would_mean_something_else_is_refused(old: str, new: str, param: str) -> None:
    with pytest.raises((InvalidField, UnsupportedParameter)) as caught:
        read_sdl(document(old, new))
    assert caught.value.param == param


BROKEN = [
    ("no image", "    image: docker.io/me/model:1\n", ""),
    ("no profile", "  compute:\n    web:", "  compute:\n    api:"),
    ("no deployment", "deployment:\n  web:", "deployment:\n  api:"),
    ("processors in words", "{units: 500m}", "{units: many}"),
    ("a size in words", "{size: 2Gi}", "{size: large}"),
    ("a negative size", "{size: 2Gi}", "{size: -2Gi}"),
    ("a size in thousandths", "{size: 2Gi}", "{size: 512m}"),
    ("a place that is none", "region: us-west", "region: atlantis"),
    ("a cloud's site", "region: us-west", "region: eu-west-2"),
    ("a port without a number", "- port: 8000\n        as: 80", "- as: 80"),
    ("memory of a GPU in words", "ram: 80Gi", "ram: much"),
    ("services as a list", "services:\n  web:", "services:\n  - web:"),
    ("ports as a number", "    expose:\n      - port: 8000", "    expose: 8000\n    x:\n      - port: 8000"),
]


@pytest.mark.parametrize(("old", "new"), [each[1:] for each in BROKEN], ids=[each[0] for each in BROKEN])
def test_a_broken_file_is_refused(old: str, new: str) -> None:
    with pytest.raises(InvalidField):
        read_order(read_sdl(document(old, new)).fields)
