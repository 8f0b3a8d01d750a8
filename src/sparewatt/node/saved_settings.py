"""How a node is called, where it stands, what it asks for and what it serves with, kept beside its key.

An owner says it once; a later join from the same directory without flags is the same node to people as well. What is
said anew wins. It does not keep where the gateway is, nor any secret.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from sparewatt.core.errors import StartupError
from sparewatt.machine.data_dir import write_private
from sparewatt.node.settings import NodeSettings

SAVED_SETTINGS_FILE = "terms.json"
_DEFAULTS = {field.name: field.default for field in dataclasses.fields(NodeSettings)}
PRICE_FIELDS = ("hourly_usd", "prompt_usd_per_mtok", "completion_usd_per_mtok")
SERVING_FIELDS = ("backend_url", "serve", "serve_as", "serve_slots")
AUTO_BACKEND = "auto"
"""As the address of a server: forget what was kept, and look for one."""


class SavedSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is None was not said; then the settings' own default stands."""

    name: str | None = None
    region: str | None = None
    hourly_usd: str | None = None
    prompt_usd_per_mtok: str | None = None
    completion_usd_per_mtok: str | None = None
    backend_url: str | None = None
    serve: str | None = None
    """As a whole path: the next join may begin in another folder."""
    serve_as: str | None = None
    serve_slots: int | None = None

    def serves(self) -> str | None:
        """What a join without flags would serve with; None is whatever it finds."""
        return self.serve or self.backend_url


def read_saved_settings(data_dir: Path) -> SavedSettings:
    path = data_dir / SAVED_SETTINGS_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=SavedSettings)
    except FileNotFoundError:
        return SavedSettings()
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StartupError(
            f"{path} cannot be read ({error}). Remove it, and say at the next join what you said at the first."
        ) from None


def merge_saved_settings(given: Mapping[str, Any], kept: SavedSettings) -> dict[str, Any]:
    """Prices go together: a new price per hour must not stand behind old prices per token. So does a way of serving."""
    said_prices = any(name in given for name in PRICE_FIELDS)
    said_server = "backend_url" in given or "serve" in given
    left_out = (PRICE_FIELDS if said_prices else ()) + (SERVING_FIELDS if said_server else ())
    values = {name: value for name, value in msgspec.to_builtins(kept).items() if name not in left_out} | dict(given)
    if values.get("backend_url") == AUTO_BACKEND:
        del values["backend_url"]
    return values


def save_settings(settings: NodeSettings) -> None:
    """Write them down where they are others than those kept."""
    said = {name: getattr(settings, name) for name in SavedSettings.__struct_fields__}
    if settings.serve is not None:
        said["serve"] = str(settings.serve.expanduser().absolute())
    terms = SavedSettings(**{name: value for name, value in said.items() if value != _DEFAULTS[name]})
    if terms != read_saved_settings(settings.data_dir):
        write_private(settings.data_dir / SAVED_SETTINGS_FILE, msgspec.json.encode(terms))
