"""A node's key: made on first start, kept in one private file. Its address is the node's name everywhere."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from sparewatt.core.errors import StartupError
from sparewatt.core.rng import Rng
from sparewatt.protocol.signing import SigningKey

KEY_FILE = "node.key"


def load_or_create_key(data_dir: Path, *, rng: Rng) -> SigningKey:
    """Raises StartupError if the file is there but others can read it, or it holds no key."""
    path = data_dir / KEY_FILE
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            _create(path, SigningKey.generate(rng=rng))
        if os.name == "posix" and path.stat().st_mode & 0o077:
            raise StartupError(f"The node's key can be read by others. Run: chmod 600 {path}")
        return SigningKey.read(path)
    except OSError as error:
        raise StartupError(f"Cannot keep the node's key in {data_dir}: {error.strerror}.") from None
    except ValueError:
        raise StartupError(
            f"{path} holds no key. If you have no backup of it, delete it; the node then joins as a new one."
        ) from None


def _create(path: Path, key: SigningKey) -> None:
    """Written whole under another name first: a crash leaves no half of a key."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")  # for the owner's eyes only
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(key.secret_hex())
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).rename(path)
    finally:
        Path(temporary).unlink(missing_ok=True)
