"""What Akash SDL and Spheron ICL have in common: services, compute profiles, placements, deployment. Pure.

One service becomes one order. What a file says is translated or named: as a note where the order still means the same
without it, as an error where it would not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sparewatt.core.errors import InvalidField, UnsupportedParameter
from sparewatt.leasing.orders.foreign_service import translate_service
from sparewatt.leasing.orders.foreign_values import gigabytes, mapping, nominal_gb, places, processors, sequence
from sparewatt.leasing.orders.translated_order import TranslatedOrder
from sparewatt.policy.market_ids import GPU_MODEL_ID, OTHER_GPU, gpu_model_id_of
from sparewatt.policy.regions import COVERS, outside, shortest_names

_NOT_NVIDIA = ("rx-", "w7", "mi", "apple-", "a770", "gaudi")
_VENDOR_NAMES = {
    "nvidia": [name for name in GPU_MODEL_ID if not name.startswith(_NOT_NVIDIA)],
    "amd": [name for name in GPU_MODEL_ID if name.startswith(("rx-", "w7", "mi"))],
    "intel": [name for name in GPU_MODEL_ID if name.startswith(("a770", "gaudi"))],
    "apple": [name for name in GPU_MODEL_ID if name.startswith("apple-")],
}
_MODELS = {"titanrtx": "titan-rtx", "titanv": "titan-v"}
_USUAL_ARCHITECTURES = {"amd64", "x86_64", "x86-64"}
_OTHER_PROVIDERS = {"desired_provider", "provider_exclude", "exclude_provider", "desired_fizz", "fizz_exclude"}
_PERSISTENT = (
    "WARNING 'storage.attributes.persistent': the disk lasts as long as the lease stays with its provider. If a "
    "stand-in takes over, or the lease ends, it is gone: keep a copy of what you need."
)


@dataclass(frozen=True, slots=True)
class ForeignService:
    """The one service of a file, with its profiles."""

    name: str
    service: Mapping[str, Any]
    resources: Mapping[str, Any]
    placement: Mapping[str, Any]
    count: Any


def only_service(document: Mapping[str, Any]) -> ForeignService:
    """Raises InvalidField if there is not exactly one, or its profiles are missing."""
    services = mapping(document.get("services"), "services")
    name = _only(services, "services", "An order runs one container. Write a file for each service.")
    profiles = mapping(document.get("profiles"), "profiles")
    deployments = mapping(document.get("deployment"), "deployment")
    _only(deployments, "deployment", "An order deploys one service.")
    where = mapping(deployments.get(name), f"deployment.{name}")
    at = _only(where, f"deployment.{name}", "An order has one placement: several are several orders.")
    chosen = mapping(where[at], f"deployment.{name}.{at}")
    compute = mapping(profiles.get("compute"), "profiles.compute")
    profile = str(chosen.get("profile", name))
    placements = mapping(profiles.get("placement") or {}, "profiles.placement")
    machine = mapping(compute.get(profile), f"profiles.compute.{profile}")
    return ForeignService(
        name=name,
        service=mapping(services[name], f"services.{name}"),
        resources=mapping(machine.get("resources", machine), f"profiles.compute.{profile}.resources"),
        placement=mapping(placements.get(at) or {}, f"profiles.placement.{at}"),
        count=chosen.get("count", 1),
    )


def translate(found: ForeignService) -> TranslatedOrder:
    """What both formats say in the same way."""
    order = TranslatedOrder()
    order.fields = {"name": found.name, "count": found.count}
    translate_service(found.service, order)
    _translate_resources(found.resources, order)
    _translate_placement(found.placement, order)
    return order


def leave_out(order: TranslatedOrder, names: Iterable[str]) -> None:
    for name in names:
        order.note(f"'{name}' is left out: orders have nothing like it.")


# the machine


def _translate_resources(resources: Mapping[str, Any], order: TranslatedOrder) -> None:
    ours: dict[str, Any] = {"gpus": 0}
    for name, value in resources.items():
        match name:
            case "cpu":
                ours["cpus"] = _cpus(value, order)
            case "memory":
                ours["memory_gb"] = gigabytes(_amount(value, "memory", "size", order), "memory.size")
            case "storage":
                order.fields["disk_gb"] = _disk(value, order)
            case "gpu":
                gpu = mapping(value, "gpu")
                ours["gpus"] = gpu.get("units", 1)
                leave_out(order, [f"gpu.{each}" for each in gpu if each not in {"units", "attributes"}])
                _translate_gpus(mapping(gpu.get("attributes") or {}, "gpu.attributes"), order)
            case "id":
                pass
            case _:
                leave_out(order, [f"resources.{name}"])
    order.fields["resources"] = ours


def _amount(value: Any, at: str, field: str, order: TranslatedOrder) -> Any:
    """`{size: 2Gi}`, or the size alone."""
    if not isinstance(value, Mapping):
        return value
    leave_out(order, [f"{at}.{name}" for name in value if name not in {field, "attributes", "name"}])
    return value.get(field)


def _cpus(value: Any, order: TranslatedOrder) -> str:
    """Raises UnsupportedParameter for processors of another kind: the image would not run on most machines."""
    attributes = mapping(value.get("attributes") or {}, "cpu.attributes") if isinstance(value, Mapping) else {}
    for name, wanted in attributes.items():
        words = set(map(str, wanted)) if isinstance(wanted, Mapping | list) else {str(wanted)}
        if name != "arch" or not words <= _USUAL_ARCHITECTURES:
            raise UnsupportedParameter(
                f"'cpu.attributes.{str(name)[:40]}': an order cannot ask for a kind of processor.", param="cpu"
            )
    return processors(_amount(value, "cpu", "units", order))


def _disk(value: Any, order: TranslatedOrder) -> str:
    total = Decimal(0)
    for volume in value if isinstance(value, list) else [value]:
        size = gigabytes(_amount(volume, "storage", "size", order), "storage.size")
        attributes = volume.get("attributes") if isinstance(volume, Mapping) else None
        if not _is_shared_memory(mapping(attributes or {}, "storage.attributes"), order):
            total += Decimal(size)
    return str(total)


def _is_shared_memory(attributes: Mapping[str, Any], order: TranslatedOrder) -> bool:
    kind = str(attributes.get("class", "default"))
    if kind == "ram":
        order.note("'storage' of class ram is left out: shared memory counts as memory.")
        return True
    if str(attributes.get("persistent")).lower() == "true":
        order.note(_PERSISTENT)
    if kind != "default":
        order.note(f"'storage.attributes.class': {kind[:40]} is left out: disks here have no classes.")
    leave_out(order, [f"storage.attributes.{name}" for name in attributes if name not in {"class", "persistent"}])
    return False


def _translate_gpus(attributes: Mapping[str, Any], order: TranslatedOrder) -> None:
    vendors = mapping(attributes.get("vendor") or {}, "gpu.attributes.vendor")
    names: list[str] = []
    memory: list[int] = []
    for vendor, models in vendors.items():
        entries = [mapping(each, f"vendor.{vendor}") for each in sequence(models or [], f"vendor.{vendor}")]
        wanted = [_model(str(entry["model"])) for entry in entries if entry.get("model") not in (None, "*")]
        names += [name for name, _ in wanted] or _vendor_names(str(vendor))
        memory += [size for _, size in wanted if size is not None]
        memory += [nominal_gb(entry["ram"]) for entry in entries if entry.get("ram") is not None]
        if any(entry.get("interface") is not None for entry in entries):
            order.note("'gpu.interface' is left out: models of one name count as one, PCIe or SXM.")
        unknown = {str(name) for entry in entries for name in entry} - {"model", "ram", "interface"}
        leave_out(order, [f"gpu.{name}" for name in sorted(unknown)])
    if "req_vram" in attributes:
        order.note("'gpu.req_vram' is left out: a lease has whole GPUs, with all of their memory.")
    leave_out(order, [f"gpu.attributes.{name}" for name in attributes if name not in {"vendor", "req_vram"}])
    if names:
        order.policy["gpu"] = _known_models(names, order)
    if memory:
        order.policy["vram_gb"] = f">={min(memory)}"
    if len(set(memory)) > 1:
        order.note(f"'gpu.ram': the order asks for {min(memory)} GB of every model.")


def _model(text: str) -> tuple[str, int | None]:
    """A name and the memory that is part of it: `a100-sxm-40g`, `a100-80gb`."""
    found = re.fullmatch(r"(.*[a-z0-9])[-_ ](\d{1,4})gb?", text.strip().lower())
    name, size = (found[1], int(found[2])) if found is not None else (text, None)
    return _MODELS.get(name, name), size


def _known_models(names: list[str], order: TranslatedOrder) -> list[str]:
    """Those of the market's table; if it has none of them, all, which the order's parser refuses by name."""
    known = [name for name in names if gpu_model_id_of(name) != OTHER_GPU]
    unknown = [name for name in names if name not in known] if known else []
    if unknown:
        listed = ", ".join(name[:40] for name in unknown)
        order.note(f"'gpu.model': {listed} left out: the market's table of GPUs does not have it.")
    return known or names


def _vendor_names(vendor: str) -> list[str]:
    """An order cannot ask for a vendor, only for models: all of its in the market's table."""
    if vendor not in _VENDOR_NAMES:
        raise InvalidField(f"'gpu.attributes.vendor': {vendor[:40]!r} is not known.", param="gpu")
    return _VENDOR_NAMES[vendor]


# the place


def _translate_placement(placement: Mapping[str, Any], order: TranslatedOrder) -> None:
    for name, value in placement.items():
        match name:
            case "attributes":
                _translate_attributes(mapping(value or {}, "attributes"), order)
            case "pricing":
                order.note(
                    "'pricing' is left out: it is in another network's money. The highest price follows from the "
                    "offers here, unless you give --max-hourly."
                )
            case "signedBy":
                order.note(
                    "WARNING 'signedBy' is left out: its auditors are another network's, so providers that none of "
                    "them knows may serve. 'policy.compliance' and 'policy.tier' are the ways to narrow it here."
                )
            case _:
                leave_out(order, [f"placement.{name}"])


def _translate_attributes(attributes: Mapping[str, Any], order: TranslatedOrder) -> None:
    allowed: dict[str, str] = {}
    excluded: dict[str, str] = {}
    for name, value in attributes.items():
        match name:
            case "region" | "location-region" | "country":
                allowed |= places(str(value))
            case "exclude_region" | "region_exclude":
                excluded |= places(str(value))
            case _ if name in _OTHER_PROVIDERS:
                order.note(
                    f"WARNING 'placement.attributes.{name}' is left out: its addresses are another network's. "
                    "'policy.only' and 'policy.ignore' name providers here."
                )
            case _:
                order.note(f"'placement.attributes.{name}' is left out: providers here have no such attribute.")
    for word, place in (allowed | excluded).items():
        if "-" in word and word.partition("-")[0] == place.lower():
            order.note(f"'attributes.region': {word} counts as {place}: an order knows countries only.")
    if allowed or excluded:
        order.policy["region"] = _regions(set(allowed.values()), set(excluded.values()))


def _regions(allowed: set[str], excluded: set[str]) -> list[str]:
    """In the fewest words. Raises InvalidField if nothing is left."""
    without = frozenset[str]().union(*(COVERS[place] for place in excluded))
    left = frozenset[str]().union(*(COVERS[place] for place in allowed)) if allowed else outside(without)
    kept = frozenset(place for place in left if not COVERS[place] & without)
    names = shortest_names(kept) if without else sorted(allowed)
    if not names:
        raise InvalidField("'attributes.exclude_region' excludes all that 'region' allows.", param="region")
    return names


def _only(found: Mapping[str, Any], at: str, why: str) -> str:
    if len(found) != 1:
        names = ", ".join(str(name)[:40] for name in list(found)[:5])
        raise InvalidField(f"'{at}' has {len(found)} entries ({names}). {why}", param=at)
    return str(next(iter(found)))
