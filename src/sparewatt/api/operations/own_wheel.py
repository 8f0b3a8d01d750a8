"""Packs the installed program as a wheel, so that a gateway serves exactly the code that it runs.

Packing needs no network, compiler or build tool, and an editable checkout works as well as an installed wheel. It is
reproducible: the same files give the same bytes, so that gateways of one release serve one hash.
"""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from sparewatt.core.limits import MIB

PACKAGE = "sparewatt"
OWN_WHEEL_BYTES_MAX = 16 * MIB
"""What a gateway keeps in memory to serve as its own package; it is under one MiB."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest date of the zip format. Dates of files differ between machines, and would change the hash."""
_WHEEL = "Wheel-Version: 1.0\nGenerator: sparewatt\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_DASHBOARD = Path("api/dashboard/dist")
_METADATA = ("METADATA", "entry_points.txt")


@dataclass(frozen=True, slots=True)
class Wheel:
    name: str
    version: str
    data: bytes
    sha256: str


def pack_own_wheel() -> Wheel | None:
    """None if this program was not installed as a package, or is larger than OWN_WHEEL_BYTES_MAX."""
    import sparewatt  # noqa: PLC0415 (for its path, not its names)

    try:
        installed = distribution(PACKAGE)
    except PackageNotFoundError:
        return None
    source = Path(sparewatt.__file__).parent
    wheel = pack_wheel(installed.version, list(_files(source, installed)))
    return wheel if len(wheel.data) <= OWN_WHEEL_BYTES_MAX else None


def pack_wheel(version: str, files: list[tuple[str, bytes]]) -> Wheel:
    """`files`: paths inside the wheel, and contents. Their order does not matter."""
    info = f"{PACKAGE}-{version}.dist-info"
    content = sorted({**dict(files), f"{info}/WHEEL": _WHEEL.encode()}.items())
    record = "".join(f"{name},sha256={_digest(data)},{len(data)}\n" for name, data in content)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in [*content, (f"{info}/RECORD", f"{record}{info}/RECORD,,\n".encode())]:
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, data)
    data = packed.getvalue()
    return Wheel(f"{PACKAGE}-{version}-py3-none-any.whl", version, data, hashlib.sha256(data).hexdigest())


def _files(source: Path, installed: Distribution) -> Iterator[tuple[str, bytes]]:
    for path in sorted(source.rglob("*")):
        if path.is_file() and not _is_excluded(path.relative_to(source)):
            yield f"{PACKAGE}/{path.relative_to(source).as_posix()}", path.read_bytes()
    info = f"{PACKAGE}-{installed.version}.dist-info"
    for name in _METADATA:
        if (text := installed.read_text(name)) is not None:
            yield f"{info}/{name}", text.encode()
    for name in installed.metadata.get_all("License-File") or ():
        if (text := installed.read_text(f"licenses/{name}")) is not None:
            yield f"{info}/licenses/{name}", text.encode()


def _is_excluded(path: Path) -> bool:
    """Caches; and the built dashboard, which a node does not use and which may be under construction right now."""
    return "__pycache__" in path.parts or path.is_relative_to(_DASHBOARD)


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
