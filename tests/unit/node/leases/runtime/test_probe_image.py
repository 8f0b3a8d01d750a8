"""The program and the image that the package brings: of this source, for each platform, the same every time."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import subprocess
import tarfile
import tempfile
from pathlib import Path

import pytest

from sparewatt.node.leases.runtime import probe_image

ROOT = Path(__file__).parents[5]
MACHINES = ("aarch64", "x86_64")
needs_a_program = pytest.mark.skipif(not probe_image.has_program(), reason="no program for this platform")


def test_the_package_brings_a_program_for_each_platform_and_no_other() -> None:
    assert sorted(probe_image.FOLDER.glob("*")) == [probe_image.program_path(machine) for machine in MACHINES]
    assert not probe_image.has_program("riscv64")


@pytest.mark.parametrize("machine", MACHINES)
def test_a_program_is_of_this_source_and_names_no_path_of_its_builder(machine: str) -> None:
    data = probe_image.program_path(machine).read_bytes()
    digest = probe_image.source_digest(ROOT / "native" / "probe.c")
    assert f"source:{digest}\0".encode() in data, "native/probe.c was changed: run `make probe` and commit the programs"
    assert not [folder for folder in (ROOT, Path.home(), Path(tempfile.gettempdir())) if bytes(folder) in data]


@pytest.mark.parametrize("machine", MACHINES)
def test_an_image_is_the_program_alone_and_always_the_same(machine: str) -> None:
    archive = probe_image.image_archive(machine)
    probe_image.image_archive.cache_clear()
    assert probe_image.image_archive(machine) == archive
    with tarfile.open(fileobj=io.BytesIO(archive)) as outer:
        files = {each.name: outer.extractfile(each).read() for each in outer.getmembers()}  # type: ignore[union-attr]
    (manifest,) = json.loads(files["manifest.json"])
    layer, config = files[manifest["Layers"][0]], files[manifest["Config"]]
    assert manifest["RepoTags"] == [probe_image.image_tag(machine)]
    assert manifest["Config"] == f"{hashlib.sha256(config).hexdigest()}.json"
    described = json.loads(config)
    assert described["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
    assert described["architecture"] == probe_image.ARCHITECTURES[machine]
    with tarfile.open(fileobj=io.BytesIO(layer)) as inner:
        assert [each.name for each in inner.getmembers()] == ["data", "probe"]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "probe"
    path.write_bytes(probe_image.program_path(platform.machine()).read_bytes())
    path.chmod(0o755)
    return path


@needs_a_program
def test_the_program_reports_what_it_found(program: Path, tmp_path: Path) -> None:
    facts = tmp_path / "facts"
    facts.write_text("other 1\nthrottled 42\nNoNewPrivs:\t1\n")
    tasks = [
        *("alloc", "4", "fork", "3", "spin", "5", "write", str(tmp_path / "out"), "2", "say", "hello", "env", "HOME"),
        *("find", str(facts), "throttled", "find", str(facts), "NoNewPrivs:", "find", "/nowhere", "x"),
        *("connect", "500", "127.0.0.1", "1", "size", "complain", "oh", "echo", "exit", "9", "say", "never"),
    ]
    ended = subprocess.run(
        [program, *tasks], input="in\n", env={"HOME": "/h"}, capture_output=True, text=True, check=False
    )
    lines = ended.stdout.splitlines()
    assert (ended.returncode, ended.stderr) == (9, "oh\n")
    assert lines[:2] == ["alloc 4", "fork 3"]
    assert lines[2].split()[0] == "spin"
    assert int(lines[2].split()[2]) >= 5_000
    assert lines[3:] == [
        *("write 2 0", "hello", "env HOME=/h", "find throttled 42", "find NoNewPrivs: 1", "find x -1"),
        *("connect 127.0.0.1 1 refused", "size 0 0", "in"),
    ]
    assert (tmp_path / "out").stat().st_size == 2 << 20


@needs_a_program
@pytest.mark.parametrize("tasks", [["dance"], ["alloc"], ["connect", "1", "127.0.0.1"]])
def test_a_task_that_the_program_does_not_know_ends_it(program: Path, tasks: list[str]) -> None:
    assert subprocess.run([program, *tasks], capture_output=True, check=False).returncode == 2
