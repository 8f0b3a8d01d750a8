"""The gateway's TLS certificate: read at start, and again when its files change or on SIGHUP.

Open connections keep the certificate they began with. If a new one cannot be loaded, the old one stays in use and the
log says why.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from sparewatt.core.errors import StartupError
from sparewatt.core.log import Logger

_log = Logger("sparewatt.gateway")
CHECK_S = 10.0
"""Between two checks of the files: a renewed certificate has weeks, one stat costs nothing."""


class Certificate:
    """A certificate chain and its key, in PEM files. `context` stays the same object."""

    def __init__(self, cert: Path, key: Path) -> None:
        """Raises StartupError, whose text never contains the key."""
        self._cert, self._key = cert.expanduser(), key.expanduser()
        self._version = self._stat()
        try:
            self.context = self._load()
        except (OSError, ValueError) as error:
            raise StartupError(f"The certificate {self._cert} cannot be used: {_why(error)}.") from None

    def reload(self) -> bool:
        """Load what is in the files now. False if that cannot be used; then nothing changes."""
        self._version = self._stat()
        try:
            self._load()  # into a new context first: a failure must not leave the live one half changed
            self.context.load_cert_chain(self._cert, self._key, password=_no_password)
        except (OSError, ValueError) as error:
            _log.warning("certificate_not_taken", why=_why(error))
            return False
        _log.info("certificate_taken")
        return True

    def reload_if_changed(self) -> bool:
        return self._stat() != self._version and self.reload()

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        context.load_cert_chain(self._cert, self._key, password=_no_password)
        return context

    def _stat(self) -> tuple[object, ...]:
        return tuple(_file_version(path) for path in (self._cert, self._key))


def _file_version(path: Path) -> tuple[int, int, int] | None:
    """Changes with the file, and with the target of a symbolic link."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _no_password() -> str:
    raise ValueError("the key is encrypted; a server needs one without a passphrase")


def _why(error: OSError | ValueError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "it is no PEM file").replace("_", " ").lower()
    return (error.strerror or type(error).__name__) if isinstance(error, OSError) else str(error)
