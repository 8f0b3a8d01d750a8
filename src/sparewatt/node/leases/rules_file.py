"""The owner's rules for leases, saved next to the key."""

from __future__ import annotations

from pathlib import Path

import msgspec

from sparewatt.core.errors import StartupError
from sparewatt.machine.data_dir import make_private_dir, write_private
from sparewatt.node.leases.offer_rules import LeaseRules

FILE = "lease_rules.json"


def read_lease_rules(data_dir: Path) -> LeaseRules:
    path = data_dir / FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=LeaseRules)
    except FileNotFoundError:
        return LeaseRules()
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StartupError(
            f"{path} cannot be read ({error}). Remove it, and set 'sparewatt node leases offer' again."
        ) from None


def write_lease_rules(data_dir: Path, rules: LeaseRules) -> None:
    make_private_dir(data_dir)
    write_private(data_dir / FILE, msgspec.json.encode(rules))
