"""`/eigen/…`: the AVS node API of EigenLayer's specification v0.0.1, which operators' tools read.

Health is a status code; a body, also of an error, has the specification's form and not this API's own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Protocol

import msgspec

from sparewatt import __version__
from sparewatt.protocol.api.validators import EigenNode, EigenService, EigenServices
from sparewatt.validator.server import ServerReply

EIGEN_PATH = "/eigen/"
NODE_NAME = "sparewatt-validator"
SPEC_VERSION = "0.0.1"
_SERVICE = re.compile(r"/eigen/node/services/([a-z-]{1,40})/health")


class Health(Enum):
    """The status codes of a node's health."""

    OK = 200
    SYNCING = 206
    """It is initializing, or a backing service is not healthy."""
    DOWN = 503


SERVICE_STATUS = {"Up": Health.OK, "Initializing": Health.SYNCING, "Down": Health.DOWN}


class ObservedHealth(Protocol):
    def health(self) -> Health: ...

    def services(self) -> list[EigenService]: ...


def eigen_reply(observed: ObservedHealth, path: str, query: Mapping[str, str]) -> ServerReply:
    if query.get("version", SPEC_VERSION).removeprefix("v") != SPEC_VERSION:
        return _missing("API version not found")
    match path:
        case "/eigen/node":
            version = f"v{__version__}"
            return _json(EigenNode(node_name=NODE_NAME, spec_version=f"v{SPEC_VERSION}", node_version=version))
        case "/eigen/node/health":
            return ServerReply(b"", observed.health().value)
        case "/eigen/node/services":
            return _json(EigenServices(services=observed.services()))
    if match := _SERVICE.fullmatch(path):
        status = {service.id: service.status for service in observed.services()}.get(match[1])
        return ServerReply(b"", SERVICE_STATUS[status].value) if status is not None else _missing("Service not found")
    return _missing("Not found")


def _json(value: msgspec.Struct) -> ServerReply:
    return ServerReply(msgspec.json.encode(value))


def _missing(message: str) -> ServerReply:
    return ServerReply(msgspec.json.encode({"message": message}), 404)
