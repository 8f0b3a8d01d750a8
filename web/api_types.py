"""Writes the page's TypeScript types from the gateway's OpenAPI document: `python web/api_types.py`, or `--check`.

Plain interfaces, one per schema, under the names that `protocol/api/` gives them. By hand and not by a package: whoever
starts the network builds the page, and should not have to install a generator for that.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from sparewatt.api.openapi.__main__ import all_routes
from sparewatt.api.openapi.document import make_document

FILE = Path(__file__).resolve().parent / "src" / "api" / "schema.ts"
HEAD = """// Written by `make api-types` from the gateway's OpenAPI document.
// Do not edit: change src/sparewatt/protocol/api/.

"""
_PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}
Schema = dict[str, Any]


def type_of(schema: Schema) -> str:
    match schema:
        case {"$ref": str(ref)}:
            found = ref.rpartition("/")[2]
        case {"const": value}:
            found = json.dumps(value)
        case {"enum": values}:
            found = " | ".join(map(json.dumps, values))
        case {"anyOf": members}:
            found = " | ".join(dict.fromkeys(map(type_of, members)))
        case {"type": [*kinds]}:
            found = " | ".join(type_of({**schema, "type": kind}) for kind in kinds)
        case {"type": "array"}:
            found = _array(schema)
        case {"type": "object"}:
            found = _record(schema)
        case _:
            found = _PLAIN.get(schema.get("type", ""), "unknown")
    return found


def _array(schema: Schema) -> str:
    if "prefixItems" in schema:
        return f"[{', '.join(map(type_of, schema['prefixItems']))}]"
    item = type_of(schema.get("items") or {})
    return f"({item})[]" if " | " in item else f"{item}[]"


def _record(schema: Schema) -> str:
    """A mapping. Keys of a closed set may be left out."""
    value = type_of(schema.get("additionalProperties") or {})
    names = schema.get("propertyNames") or {}
    return f"Partial<Record<{type_of(names)}, {value}>>" if "enum" in names else f"Record<string, {value}>"


def declaration(name: str, schema: Schema) -> str:
    if schema.get("type") != "object" or "properties" not in schema:
        return f"export type {name} = {type_of(schema)};\n"
    required = set(schema.get("required", ()))
    fields = [
        f"  {_key(field)}{'' if field in required else '?'}: {type_of(each)};\n"
        for field, each in schema["properties"].items()
    ]
    return f"{_comment(schema)}export interface {name} {{\n{''.join(fields)}}}\n"


def _key(field: str) -> str:
    return field if field.isidentifier() else json.dumps(field)


def _comment(schema: Schema) -> str:
    text = " ".join(str(schema.get("description", "")).split())
    return f"/** {text} */\n" if text else ""


def render() -> str:
    schemas = json.loads(make_document(all_routes()))["components"]["schemas"]
    return HEAD + "\n".join(declaration(name, schemas[name]) for name in sorted(schemas))


def main(argv: list[str]) -> int:
    text = render()
    if "--check" not in argv:
        FILE.write_text(text)
        return 0
    if FILE.exists() and FILE.read_text() == text:
        return 0
    sys.stderr.write("web/src/api/schema.ts is not what the API is: run 'make api-types'.\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
