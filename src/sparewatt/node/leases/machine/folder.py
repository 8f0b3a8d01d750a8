"""The folder that all agents of a machine share: a lock, and one file for each agent, replaced as a whole.

Only its own agent writes a file, and the folder is sticky, so that agents of several users can share it. Nothing is
flushed to disk: after a power cut every agent writes its part again from what it keeps itself. A local user can put a
false file here, which costs the others lease offers and nothing else.
"""

from __future__ import annotations

import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from sparewatt.core.errors import StartupError
from sparewatt.machine.data_dir import Locker, platform_locker
from sparewatt.node.leases.machine.records import AgentRecord

LOCK_NAME = "lock"
LOCK_WAIT_S = 0.25
"""An agent holds the lock for about a millisecond. One that was stopped meanwhile must not stop the others."""
LOCK_POLL_S = 0.002
AGENTS_MAX = 64
FILE_BYTES_MAX = 256 * 1024
_OPEN_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class MachineAccountError(StartupError):
    """The machine's account cannot be used, so that no leases are offered. Its text has the remedy."""


def default_machine_dir() -> Path:
    """One for all users of this machine; on Windows, where no containers are run, for this user."""
    if os.name == "nt":
        return Path(tempfile.gettempdir()) / "sparewatt-machine"
    return Path("/var/tmp/sparewatt-machine")  # noqa: S108 (shared on purpose: sticky, and each file is its agent's own)


class MachineFolder:
    def __init__(self, path: Path, *, locker: Locker | None = None, wait: Callable[[float], None] = time.sleep) -> None:
        self.path = path
        self._locker = locker or platform_locker()
        self._wait = wait

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Raises MachineAccountError. The kernel frees the lock when its holder dies."""
        descriptor = self._lock()
        try:
            yield
        finally:
            os.close(descriptor)

    def read_others(self, own: str) -> list[AgentRecord]:
        """Every other agent's record. Raises MachineAccountError for one that is unreadable."""
        try:
            paths = sorted(path for path in self.path.glob("0x*.json") if path != self._path(own))
        except OSError as error:
            raise self._unusable(error) from None
        if len(paths) > AGENTS_MAX:
            raise MachineAccountError(
                f"{self.path} has files of more than {AGENTS_MAX} agents. Remove those of agents that are no more."
            )
        found = [self._read(path) for path in paths]
        return [record for record in found if record is not None]

    def write(self, record: AgentRecord) -> None:
        """Replaces the agent's own file: others see the old one or the new one. Raises MachineAccountError."""
        path = self._path(record.node)
        temporary = ""
        try:
            self._make()
            descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=self.path)
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.encode(record))
                _allow(file.fileno(), 0o644)
            Path(temporary).replace(path)
        except OSError as error:
            raise self._unusable(error) from None
        finally:
            if temporary:
                with suppress(OSError):
                    Path(temporary).unlink(missing_ok=True)

    def has(self, node: str) -> bool:
        return self._path(node).exists()

    def remove(self, node: str) -> None:
        """Of an agent of which nothing is left. Without effect where it belongs to another user."""
        with suppress(OSError):
            self._path(node).unlink(missing_ok=True)

    def _path(self, node: str) -> Path:
        return self.path / f"{node}.json"

    def _read(self, path: Path) -> AgentRecord | None:
        try:
            descriptor = os.open(path, os.O_RDONLY | _OPEN_FLAGS)
            with os.fdopen(descriptor, "rb") as file:
                body = file.read(FILE_BYTES_MAX + 1)
            record = _decoded(body, path)
        except FileNotFoundError:  # removed meanwhile
            return None
        except (OSError, ValueError, RecursionError) as error:
            raise MachineAccountError(
                f"The account of this machine cannot be read: {path} ({str(error)[:100]}). Its agent writes it anew "
                "within seconds. If that agent is no more, and none of its leases runs here, remove the file."
            ) from None
        return record

    # the lock

    def _lock(self) -> int:
        deadline_s = time.monotonic() + LOCK_WAIT_S
        while True:
            descriptor = self._open_lock()
            if self._locker(descriptor) and self._is_current(descriptor):
                return descriptor
            os.close(descriptor)
            if time.monotonic() >= deadline_s:
                raise MachineAccountError(
                    f"Another process holds {self.path / LOCK_NAME}. It should do so for a moment only: look for an "
                    "agent that was stopped ('ps' shows T), and continue or end it."
                )
            self._wait(LOCK_POLL_S)

    def _open_lock(self) -> int:
        """For reading only, so that a lock of another user will do."""
        path = self.path / LOCK_NAME
        try:
            with suppress(FileNotFoundError):
                return os.open(path, os.O_RDONLY | _OPEN_FLAGS)
            self._make()
            with suppress(FileExistsError):
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _OPEN_FLAGS, 0o644)
                _allow(descriptor, 0o644)
                return descriptor
            return os.open(path, os.O_RDONLY | _OPEN_FLAGS)
        except OSError as error:
            raise self._unusable(error) from None

    def _is_current(self, descriptor: int) -> bool:
        """Whether it is the lock that others would find: someone may have removed the folder."""
        try:
            named = (self.path / LOCK_NAME).stat()
        except OSError:
            return False
        return os.path.samestat(named, os.fstat(descriptor))

    def _make(self) -> None:
        """Sticky and open to all, unless it is there already. Raises OSError."""
        try:
            self.path.mkdir(parents=True)
        except FileExistsError:
            if not self.path.is_dir() or self.path.is_symlink():
                raise NotADirectoryError(20, "it is no folder") from None
            return
        if self.path == default_machine_dir() and hasattr(os, "geteuid"):
            self.path.chmod(0o777 | stat.S_ISVTX)

    def _unusable(self, error: OSError) -> MachineAccountError:
        return MachineAccountError(
            f"The account of this machine in {self.path} cannot be used: {error.strerror or type(error).__name__}. "
            "Let every user who runs an agent write there, or give all of them another folder with --machine-dir."
        )


def _decoded(body: bytes, path: Path) -> AgentRecord:
    """Raises ValueError."""
    record = msgspec.json.decode(body[:FILE_BYTES_MAX], type=AgentRecord)
    if f"{record.node}.json" != path.name:
        raise ValueError("it is of another agent")
    return record


def _allow(descriptor: int, mode: int) -> None:
    if hasattr(os, "fchmod"):
        os.fchmod(descriptor, mode)
