"""`python -m sparewatt.api.openapi`: print the OpenAPI document without a running gateway."""

from __future__ import annotations

import sys
from importlib import import_module
from inspect import getmembers, isclass
from pkgutil import walk_packages

import sparewatt.api
from sparewatt.api.endpoint import ApiRoute, declared_routes
from sparewatt.api.openapi.document import make_document


def all_routes() -> list[ApiRoute]:
    """Of every class under `sparewatt.api` that declares some."""
    modules = [
        import_module(module.name)
        for module in walk_packages(sparewatt.api.__path__, prefix="sparewatt.api.")
        if not module.name.endswith("__main__")
    ]
    classes = {kind for module in modules for _, kind in getmembers(module, isclass)}
    own = sorted((kind for kind in classes if kind.__module__.startswith("sparewatt.api.")), key=repr)
    return [route for kind in own for route in declared_routes(kind)]


if __name__ == "__main__":
    sys.stdout.buffer.write(make_document(all_routes()) + b"\n")
