"""What an owner wants of a node besides its price: a pause, hours, and ceilings. Kept beside its key, over restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from sparewatt.core.errors import StartupError
from sparewatt.machine.data_dir import write_private
from sparewatt.node.owner.working_hours import WorkingHours

FILE = "wishes.json"
UNTIL_RESUMED_UNIX_S = 1e12
"""A pause without an end, in Unix seconds."""


class OwnerRules(msgspec.Struct, frozen=True, omit_defaults=True):
    paused_until_unix_s: Annotated[float, Meta(ge=0, le=UNTIL_RESUMED_UNIX_S)] = 0.0
    """Until then the owner wants no jobs; 0 is not at all."""
    hours: WorkingHours | None = None
    """When the node may work; None is always."""
    watts_max: Annotated[float, Meta(gt=0, le=1e5)] | None = None
    temperature_max_c: Annotated[float, Meta(gt=0, le=150)] | None = None


def read_owner_rules(data_dir: Path) -> OwnerRules:
    path = data_dir / FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=OwnerRules)
    except FileNotFoundError:
        return OwnerRules()
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StartupError(f"{path} cannot be read ({error}). Remove it, and set pause and schedule again.") from None


def write_owner_rules(data_dir: Path, wishes: OwnerRules) -> None:
    write_private(data_dir / FILE, msgspec.json.encode(wishes))
