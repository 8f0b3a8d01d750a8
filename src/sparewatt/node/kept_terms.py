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

FILE = "terms.json"
_DEFAULTS = {field.name: field.default for field in dataclasses.fields(NodeSettings)}
PRICES = ("hourly_usd", "prompt_usd_per_mtok", "completion_usd_per_mtok")
SERVING = ("backend_url", "serve", "serve_as", "serve_slots")
LOOK_ANEW = "auto"
"""As the address of a server: forget what was kept, and look for one."""


class KeptTerms(msgspec.Struct, frozen=True, omit_defaults=True):
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


def read_terms(data_dir: Path) -> KeptTerms:
    path = data_dir / FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=KeptTerms)
    except FileNotFoundError:
        return KeptTerms()
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StartupError(
            f"{path} cannot be read ({error}). Remove it, and say at the next join what you said at the first."
        ) from None


def with_kept(given: Mapping[str, Any], kept: KeptTerms) -> dict[str, Any]:
    """Prices go together: a new price per hour must not stand behind old prices per token. So does a way of serving."""
    said_prices = any(name in given for name in PRICES)
    said_server = "backend_url" in given or "serve" in given
    left_out = (PRICES if said_prices else ()) + (SERVING if said_server else ())
    values = {name: value for name, value in msgspec.to_builtins(kept).items() if name not in left_out} | dict(given)
    if values.get("backend_url") == LOOK_ANEW:
        del values["backend_url"]
    return values


def keep_terms(settings: NodeSettings) -> None:
    """Write them down where they are others than those kept."""
    said = {name: getattr(settings, name) for name in KeptTerms.__struct_fields__}
    if settings.serve is not None:
        said["serve"] = str(settings.serve.expanduser().absolute())
    terms = KeptTerms(**{name: value for name, value in said.items() if value != _DEFAULTS[name]})
    if terms != read_terms(settings.data_dir):
        write_private(settings.data_dir / FILE, msgspec.json.encode(terms))
