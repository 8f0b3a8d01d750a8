"""Writes an image as `docker load` takes it: a layer of programs, which all models share, and one of weights."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from sparewatt import __version__
from sparewatt.node.leases.runtime.probe_image import ARCHITECTURES
from sparewatt.node.serving_image.image_files import PACKAGES, ImageFiles
from sparewatt.node.serving_image.weights import ModelWeights

WEIGHTS_PATH = PurePosixPath("/model/weights.gguf")
DATA_PATH = "/data"
"""Where the node keeps its key: its own for as long as its container is there."""
MODEL_LABEL, WEIGHTS_LABEL = "org.sparewatt.model", "org.sparewatt.weights-bytes"
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ImageLayer:
    path: Path
    digest: str

    @property
    def name(self) -> str:
        return f"{self.digest}/layer.tar"


def write_image(to: Path, files: ImageFiles, weights: ModelWeights, *, python: Path, tag: str) -> None:
    """Into a folder: its layers, and the archive `image.tar` of both. Raises OSError."""
    programs = _write_layer(to / "programs.tar", files, folders=(DATA_PATH,))
    model = _write_layer(to / "weights.tar", {WEIGHTS_PATH: weights.file})
    config = image_config(weights, python=python, layers=(programs.digest, model.digest))
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = [{"Config": config_name, "RepoTags": [tag], "Layers": [programs.name, model.name]}]
    with tarfile.open(to / "image.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        for layer in (programs, model):
            with layer.path.open("rb") as opened:
                tar.addfile(_entry(layer.name, layer.path.stat().st_size), opened)
            layer.path.unlink()  # a copy of everything is enough
        for name, data in ((config_name, config), ("manifest.json", json.dumps(manifest).encode())):
            tar.addfile(_entry(name, len(data)), io.BytesIO(data))


def image_config(weights: ModelWeights, *, python: Path, layers: tuple[str, ...]) -> bytes:
    """How the node is started. Gateway and join token come from the lease, by the environment."""
    started: Mapping[str, object] = {
        "Entrypoint": [str(python), "-m", "sparewatt", "node", "join"],
        "Cmd": [f"--serve={WEIGHTS_PATH}", f"--serve-as={weights.model}", f"--data={DATA_PATH}/node"],
        "Env": [
            f"PYTHONPATH={PACKAGES}",
            f"HOME={DATA_PATH}",
            "PYTHONUNBUFFERED=1",
            f"SPAREWATT_NODE_MACHINE_DIR={DATA_PATH}/machine",
        ],
        "WorkingDir": DATA_PATH,
        "StopSignal": "SIGTERM",
        "Labels": {
            MODEL_LABEL: weights.model,
            WEIGHTS_LABEL: str(weights.size_bytes),
            "org.opencontainers.image.version": __version__,
        },
    }
    return json.dumps(
        {
            "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": started,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in layers]},
        },
        sort_keys=True,
    ).encode()


class _HashingFile(io.RawIOBase):
    """Counts what is written to a file into a digest."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        view = memoryview(data)  # type: ignore[arg-type]
        self.digest.update(view)
        return self._file.write(view)


def _write_layer(path: Path, files: ImageFiles, *, folders: tuple[str, ...] = ()) -> ImageLayer:
    with path.open("wb") as file:
        hashing = _HashingFile(file)
        with tarfile.open(fileobj=hashing, mode="w|", format=tarfile.PAX_FORMAT) as tar:
            for folder in folders:
                entry = _entry(folder.lstrip("/"), 0, mode=0o755)
                entry.type = tarfile.DIRTYPE
                tar.addfile(entry)
            for name in sorted(files):
                _add(tar, name, files[name])
        return ImageLayer(path, hashing.digest.hexdigest())


def _add(tar: tarfile.TarFile, name: PurePosixPath, place: Path) -> None:
    """With its time, by which Python knows whether a compiled module is of this source; and owned by root."""
    with place.open("rb") as opened:
        status = place.stat()
        entry = _entry(str(name).lstrip("/"), status.st_size, mode=0o755 if status.st_mode & 0o111 else 0o644)
        entry.mtime = int(status.st_mtime)
        tar.addfile(entry, opened)


def _entry(name: str, size: int, *, mode: int = 0o644) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, mode
    return entry
