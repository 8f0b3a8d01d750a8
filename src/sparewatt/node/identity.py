"""A node's signing key: generated on first start, stored in one private file. Its address is the node's id."""

from __future__ import annotations

import os
from pathlib import Path

from sparewatt.core.errors import StartupError
from sparewatt.core.rng import Rng
from sparewatt.machine.data_dir import write_private
from sparewatt.protocol.signing import SigningKey

KEY_FILE = "node.key"


def load_or_create_key(data_dir: Path, *, rng: Rng) -> SigningKey:
    """Raises StartupError if the file can be read by others, or holds no key."""
    path = data_dir / KEY_FILE
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            write_private(path, SigningKey.generate(rng=rng).secret_hex().encode())
        if os.name == "posix" and path.stat().st_mode & 0o077:
            raise StartupError(f"The node's key can be read by others. Run: chmod 600 {path}")
        return SigningKey.read(path)
    except OSError as error:
        raise StartupError(f"Cannot keep the node's key in {data_dir}: {error.strerror}.") from None
    except ValueError:
        raise StartupError(
            f"{path} holds no key. If you have no backup of it, delete it; the node then joins as a new one."
        ) from None
