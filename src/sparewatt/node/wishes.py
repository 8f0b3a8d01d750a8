"""What an owner wants of a node besides its price: a pause, hours, and ceilings. Kept beside its key, over restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from sparewatt.core.errors import StartupError
from sparewatt.machine.data_dir import write_private
from sparewatt.node.hours import Hours

FILE = "wishes.json"
UNTIL_TOLD = 1e12
"""A pause without an end, in Unix seconds."""


class Wishes(msgspec.Struct, frozen=True, omit_defaults=True):
    paused_until_unix_s: Annotated[float, Meta(ge=0, le=UNTIL_TOLD)] = 0.0
    """Until then the owner wants no jobs; 0 is not at all."""
    hours: Hours | None = None
    """When the node may work; None is always."""
    watts_max: Annotated[float, Meta(gt=0, le=1e5)] | None = None
    temperature_max_c: Annotated[float, Meta(gt=0, le=150)] | None = None


def read_wishes(data_dir: Path) -> Wishes:
    path = data_dir / FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Wishes)
    except FileNotFoundError:
        return Wishes()
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StartupError(f"{path} cannot be read ({error}). Remove it, and set pause and schedule again.") from None


def keep_wishes(data_dir: Path, wishes: Wishes) -> None:
    write_private(data_dir / FILE, msgspec.json.encode(wishes))
