"""The network's secret: set by the operator, or made once and stored in a file that only its owner can read."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from sparewatt.accounts.custody import SECRET_BYTES, read_secret, read_secret_file
from sparewatt.core.errors import StartupError
from sparewatt.core.rng import Rng
from sparewatt.gateway.settings import GatewaySettings

SECRET_FILE = "secret"  # noqa: S105 (a file's name)


def network_secret(settings: GatewaySettings, rng: Rng, *, may_make: bool = True) -> bytes:
    """Raises StartupError, whose text never contains it. `may_make`: the network has none yet."""
    if settings.secret is not None:
        return read_secret(settings.secret)
    path = settings.data.expanduser() / SECRET_FILE
    if not may_make and not path.exists():
        raise StartupError(
            f"This network has a secret, and {path} is not there. Copy the file from the data directory of the first "
            "gateway, or set SPAREWATT_SECRET."
        )
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write_once(path, rng.randbytes(SECRET_BYTES).hex())
        return read_secret_file(path)
    except OSError as error:
        raise StartupError(f"Cannot store the network's secret in {path}: {error.strerror}. Set --data.") from None


def _write_once(path: Path, text: str) -> None:
    """Atomically, and never over an existing secret: every chain key would be lost."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(fd, "w") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)
