"""What a service of an SDL or ICL file runs: image, command, environment and ports. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sparewatt.core.errors import InvalidField, UnsupportedParameter
from sparewatt.leasing.orders.foreign_values import mapping, sequence
from sparewatt.leasing.orders.translated_order import TranslatedOrder
from sparewatt.protocol.contracts.lease_content import PORTS_MAX

_EXPOSE_KNOWN = {"port", "as", "proto", "to", "port_range", "port_range_as"}


def translate_service(service: Mapping[str, Any], order: TranslatedOrder) -> None:
    for name, value in service.items():
        match name:
            case "image":
                order.fields["image"] = value
            case "env":
                order.fields["env"] = _env(value, order)
            case "expose":
                order.fields["ports"] = _ports(value, order)
            case "command" | "args":
                pass
            case "credentials":
                raise UnsupportedParameter(
                    "'credentials' cannot be translated: every bidder can read an order. Use an image that needs none.",
                    param="credentials",
                )
            case "params":
                names = ", ".join(str(each)[:40] for each in mapping(value or {}, "params"))
                order.note(f"'params' ({names}) is left out: a lease has one disk, and no mounts of its own.")
            case _:
                order.note(f"'{name}' of the service is left out: orders have nothing like it.")
    command = [*_words(service.get("command"), "command"), *_words(service.get("args"), "args")]
    if command:
        order.fields["command"] = command


def _env(value: Any, order: TranslatedOrder) -> Any:
    """A name alone has an empty value there."""
    if not isinstance(value, list):
        return value
    bare = [each for each in value if isinstance(each, str) and "=" not in each]
    if bare:
        order.note(f"'env': {', '.join(each[:40] for each in bare)} without a value is set to nothing.")
    return [f"{each}=" if each in bare else each for each in value]


def _ports(value: Any, order: TranslatedOrder) -> list[Any]:
    """Each once: a file may expose one port under several names."""
    ports: list[Any] = []
    renamed: list[Any] = []
    public: list[Any] = []
    for entry in sequence(value, "expose"):
        exposed = mapping(entry, "expose")
        if str(exposed.get("proto", "tcp")).lower() == "udp":
            raise UnsupportedParameter("'expose.proto': leases carry TCP only, not UDP.", param="expose")
        found = _exposed_ports(exposed)
        ports += found
        renamed += found if exposed.get("as") not in (None, exposed.get("port")) else []
        for name in sorted(set(map(str, exposed)) - _EXPOSE_KNOWN):
            order.note(f"'expose.{name}' is left out.")
        targets = [mapping(each, "expose.to") for each in sequence(exposed.get("to") or [], "expose.to")]
        if any(target.get("ip") for target in targets):
            raise UnsupportedParameter("'expose.to.ip': leases have no address of their own.", param="expose")
        public += found if any(target.get("global") for target in targets) else []
    if renamed:
        order.note(f"'expose.as': {_listed(renamed)} keeps its number.")
    if public:
        order.note(f"'expose.to.global': {_listed(public)} is not made public; only you reach it.")
    return _once(ports)


def _exposed_ports(exposed: Mapping[str, Any]) -> list[Any]:
    """Of `port`, of `port_range`, or of both."""
    ports = [exposed["port"]] if exposed.get("port") is not None else []
    wanted = exposed.get("port_range")
    if wanted is not None:
        found = re.fullmatch(r"(\d{1,5})\s*-\s*(\d{1,5})", str(wanted).strip())
        if found is None or not 0 <= int(found[2]) - int(found[1]) < PORTS_MAX:
            raise InvalidField(
                f"'expose.port_range' is like 8443-8445, at most {PORTS_MAX} ports together.", param="expose"
            )
        ports += range(int(found[1]), int(found[2]) + 1)
    if not ports:
        raise InvalidField("'expose' has an entry without a 'port'.", param="expose")
    return ports


def _once(ports: list[Any]) -> list[Any]:
    return list({str(port): port for port in ports}.values())


def _listed(ports: list[Any]) -> str:
    names = [str(port)[:10] for port in _once(ports)]
    return f"port {names[0]}" if len(names) == 1 else f"each of the ports {', '.join(names)}"


def _words(value: Any, at: str) -> list[Any]:
    if value is None:
        return []
    return [value] if isinstance(value, str) else sequence(value, at)
