"""The files of the dashboard, in memory. Their names contain a hash of their content, so that browsers may cache them.

The dashboard may be built while the gateway runs: until `index.html` exists, there is no dashboard.
"""

from __future__ import annotations

import mimetypes
from dataclasses import dataclass
from pathlib import Path

from sparewatt.core.limits import MIB

WEB_ASSET_BYTES_MAX = 8 * MIB
"""One file of the dashboard; they are held in memory."""
DIST = Path(__file__).parent / "dist"
INDEX = "index.html"
ASSETS = "assets"
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".woff2": "font/woff2"}


@dataclass(frozen=True, slots=True)
class Asset:
    content_type: str
    body: bytes
    zipped: bytes | None


class Bundle:
    """Its methods read files; call them in a thread."""

    def __init__(self, folder: Path = DIST) -> None:
        self._folder = folder
        self._read_at: float | None = None
        self._index = b""
        self._assets: dict[str, Asset] = {}

    def index(self) -> bytes | None:
        """None until the dashboard is built. All files are read again when the index has changed."""
        path = self._folder / INDEX
        try:
            changed_at = path.stat().st_mtime
            if changed_at != self._read_at:
                self._index, self._assets = path.read_bytes(), self._read_assets()
                self._read_at = changed_at
        except OSError:
            return None
        return self._index

    def asset(self, name: str) -> Asset | None:
        """By name, from memory: a name that a client sends never becomes a path."""
        self.index()
        return self._assets.get(name)

    def _read_assets(self) -> dict[str, Asset]:
        files = {path.name: path for path in (self._folder / ASSETS).iterdir() if path.is_file()}
        return {
            name: Asset(_type_of(path), _read(path), _read(files[f"{name}.gz"]) if f"{name}.gz" in files else None)
            for name, path in files.items()
            if path.suffix != ".gz"
        }


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(WEB_ASSET_BYTES_MAX)


def _type_of(path: Path) -> str:
    return _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
