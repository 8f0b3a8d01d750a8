"""An image of nothing but the package's static program, made in memory (`native/probe.py` compiles the program).

The image's id follows from its bytes, so that an engine which has it needs no second one, and nothing is downloaded.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).with_name("programs")
PROGRAM = "/probe"
DATA = "/data"
"""A folder to write to: engines make the root 0555, to which a program without capabilities cannot write."""
REPOSITORY = "localhost/sparewatt-probe"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Python's names, and those of images."""


def program_path(machine: str) -> Path:
    return FOLDER / f"probe-linux-{machine}"


def source_digest(source: Path) -> str:
    """Is in each program, so that a test sees whether they are of this source."""
    return hashlib.sha256(source.read_bytes()).hexdigest()[:16]


def has_program(machine: str | None = None) -> bool:
    return program_path(machine or platform.machine()).exists()


@cache
def image_tag(machine: str | None = None) -> str:
    layer = _layer({PROGRAM: program_path(machine or platform.machine()).read_bytes()})
    return f"{REPOSITORY}:{hashlib.sha256(layer).hexdigest()[:16]}"


@cache
def image_archive(machine: str | None = None) -> bytes:
    """As `docker load` takes it."""
    machine = machine or platform.machine()
    return archive_of({PROGRAM: program_path(machine).read_bytes()}, tag=image_tag(machine), machine=machine)


def archive_of(programs: dict[str, bytes], *, tag: str, machine: str | None = None) -> bytes:
    """An image with these programs, as `docker load` takes it. The same for the same bytes."""
    layer = _layer(programs)
    layer_digest = hashlib.sha256(layer).hexdigest()
    config = json.dumps(
        {
            "architecture": ARCHITECTURES.get(machine or platform.machine(), "amd64"),
            "os": "linux",
            "config": {"Entrypoint": None, "Cmd": [next(iter(programs))]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]},
        },
        sort_keys=True,
    ).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = json.dumps([{"Config": config_name, "RepoTags": [tag], "Layers": [f"{layer_digest}/layer.tar"]}])
    return _tar(
        {
            config_name: (config, 0o644),
            f"{layer_digest}/layer.tar": (layer, 0o644),
            "manifest.json": (manifest.encode(), 0o644),
        }
    )


def _layer(programs: dict[str, bytes]) -> bytes:
    return _tar({path.lstrip("/"): (data, 0o755) for path, data in programs.items()}, folder=DATA)


def _tar(files: dict[str, tuple[bytes, int]], *, folder: str = "") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        if folder:
            entry = tarfile.TarInfo(folder.lstrip("/"))
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        for name, (data, mode) in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), mode
            tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()
