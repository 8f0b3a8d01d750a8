"""Writes the page's TypeScript types, `src/api/schema.ts`, from the gateway's types. With `--check` it only compares.

Each schema of the OpenAPI document becomes one interface with the name that `protocol/api/` gives it, and so do the
messages that no route declares (`MESSAGES`). There is no generator package, because whoever starts the network builds
the page and would have to install it.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, Literal, cast, get_args, get_origin

import msgspec
from msgspec.inspect import DictType, LiteralType, StructType, type_info

from sparewatt.api.openapi.__main__ import all_routes
from sparewatt.api.openapi.document import make_document
from sparewatt.protocol import api
from sparewatt.protocol.api.inference import ChatChunk
from sparewatt.protocol.api.lease_access import ExecRequest, LeaseLogPiece, SocketControl, SocketNotice

FILE = Path(__file__).resolve().parent / "src" / "api" / "schema.ts"
HEAD = """// Written by `make api-types` from the gateway's types.
// Do not edit: change src/sparewatt/protocol/api/.

"""
MESSAGES = (ChatChunk, LeaseLogPiece, ExecRequest, SocketControl, SocketNotice)
"""Events of streams that OpenAPI has no place for."""
Schema = dict[str, Any]

_PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}
_API_NAMES = {
    name: value
    for module in iter_modules(api.__path__, prefix=f"{api.__name__}.")
    for name, value in vars(import_module(module.name)).items()
}
_LITERALS = {frozenset(get_args(value)): name for name, value in _API_NAMES.items() if get_origin(value) is Literal}
"""Names of the closed sets of strings: JSON Schema has their values only."""


def type_of(schema: Schema) -> str:
    match schema:
        case {"$ref": str(ref)}:
            text = ref.rpartition("/")[2]
        case {"const": value}:
            text = json.dumps(value)
        case {"enum": values}:
            text = _LITERALS.get(frozenset(values)) or " | ".join(map(json.dumps, values))
        case {"anyOf": members}:
            text = " | ".join(dict.fromkeys(map(type_of, members)))
        case {"type": [*kinds]}:
            text = " | ".join(type_of({**schema, "type": kind}) for kind in kinds)
        case {"type": "array"}:
            text = _array(schema)
        case {"type": "object", "properties": _}:
            text = f"{{ {' '.join(_fields(schema))} }}"
        case {"type": "object"}:
            text = _mapping(schema)
        case _:
            text = _PLAIN.get(schema.get("type", ""), "unknown")
    return text


def _array(schema: Schema) -> str:
    if "prefixItems" in schema:
        return f"[{', '.join(map(type_of, schema['prefixItems']))}]"
    item = type_of(schema.get("items") or {})
    return f"({item})[]" if " | " in item else f"{item}[]"


def _mapping(schema: Schema) -> str:
    """Keys of a closed set may be left out."""
    value = type_of(schema.get("additionalProperties") or {})
    names = schema.get("propertyNames") or {}
    return f"Partial<Record<{type_of(names)}, {value}>>" if "enum" in names else f"Record<string, {value}>"


def _fields(schema: Schema) -> list[str]:
    required = set(schema.get("required", ()))
    return [
        f"{_key(name)}{'' if name in required else '?'}: {type_of(field)};"
        for name, field in schema["properties"].items()
    ]


def _key(name: str) -> str:
    return name if name.isidentifier() else json.dumps(name)


def declaration(name: str, schema: Schema) -> str:
    comment = _comment(schema)
    if "properties" in schema:
        fields = "".join(f"  {field}\n" for field in _fields(schema))
        return f"{comment}export interface {name} {{\n{fields}}}\n"
    if "prefixItems" in schema:
        items = zip(_struct(name).fields, schema["prefixItems"], strict=True)
        labelled = ", ".join(f"{field.encode_name}: {type_of(item)}" for field, item in items)
        return f"{comment}export type {name} = [{labelled}];\n"
    return f"{comment}export type {name} = {type_of(schema)};\n"


def _comment(schema: Schema) -> str:
    text = " ".join(str(schema.get("description", "")).split()).replace(" None ", " null ")
    return f"/** {text} */\n" if text else ""


def _struct(name: str) -> StructType:
    return cast("StructType", type_info(_API_NAMES[name]))


def _name_keys(name: str, schema: Schema) -> None:
    """Add the keys of mappings from a closed set, which msgspec leaves out of a JSON schema."""
    for field in _struct(name).fields if name in _API_NAMES else ():
        if isinstance(field.type, DictType) and isinstance(field.type.key_type, LiteralType):
            schema["properties"][field.encode_name]["propertyNames"] = {"enum": list(field.type.key_type.values)}


def render() -> str:
    document = json.loads(make_document(all_routes()))
    _, messages = msgspec.json.schema_components(MESSAGES, ref_template="{name}")
    schemas = {**messages, **document["components"]["schemas"]}
    for name, schema in schemas.items():
        _name_keys(name, schema)
    body = "\n".join(declaration(name, schemas[name]) for name in sorted(schemas))
    literals = {name: values for values, name in _LITERALS.items() if name in body}
    unions = [
        f"export type {name} = {' | '.join(map(json.dumps, sorted(literals[name])))};\n" for name in sorted(literals)
    ]
    return f"{HEAD}{''.join(unions)}\n{body}"


def main(argv: list[str]) -> int:
    text = render()
    if "--check" not in argv:
        FILE.write_text(text)
        return 0
    if FILE.exists() and FILE.read_text() == text:
        return 0
    sys.stderr.write("web/src/api/schema.ts does not match protocol/api/. Run: make api-types\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
