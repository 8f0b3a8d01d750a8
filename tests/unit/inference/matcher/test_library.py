"""The compiled scan that the package brings: of these sources, for each platform, and never a stale one."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sparewatt.inference.matcher import library

PLATFORMS = ("linux-aarch64", "linux-x86_64")
OWN = library.own_platform()

needs_a_library = pytest.mark.skipif(OWN not in PLATFORMS, reason="the package has no compiled scan for this platform")


def test_the_package_brings_a_library_for_each_platform_and_no_other() -> None:
    assert sorted(library.FOLDER.glob("*")) == [library.path_of(name) for name in PLATFORMS]


@pytest.mark.parametrize("name", PLATFORMS)
def test_a_library_is_of_these_sources(name: str) -> None:
    is_current = library.entry_name().encode() + b"\0" in library.path_of(name).read_bytes()
    assert is_current, "the matcher was changed: run `make scan` and commit what it builds"


@pytest.mark.parametrize("name", PLATFORMS)
def test_a_library_names_no_path_of_the_machine_that_built_it(name: str) -> None:
    data = library.path_of(name).read_bytes()
    built_in = (Path(__file__).parents[4], Path.home(), Path(tempfile.gettempdir()))
    assert not [folder for folder in built_in if bytes(folder) in data]


def test_every_source_that_is_compiled_in_is_in_the_digest() -> None:
    folder = Path(library.__file__).parent
    imports = [line for line in (folder / "compiled.py").read_text().splitlines() if line.startswith("from sparewatt")]
    used = {
        word.partition(" as ")[0].strip()
        for line in imports
        for word in (
            line.partition(" import ")[2].split(",")
            if line.startswith("from sparewatt.inference.matcher import")
            else [line.split()[1].rpartition(".")[2]]
        )
    }
    assert {f"{name}.py" for name in used} | {"compiled.py"} == set(library.SOURCES)


def test_the_digest_changes_with_any_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = library.source_digest()
    for name in library.SOURCES:
        (tmp_path / name).write_bytes(library.FOLDER.with_name(name).read_bytes())
    monkeypatch.setattr(library, "FOLDER", tmp_path / "native")
    digests = {before}
    for name in library.SOURCES:
        library.source_digest.cache_clear()
        assert library.source_digest() in digests
        (tmp_path / name).write_bytes((tmp_path / name).read_bytes() + b"\n")
        library.source_digest.cache_clear()
        assert library.source_digest() not in digests
        digests.add(library.source_digest())
    monkeypatch.undo()
    library.source_digest.cache_clear()
    assert library.source_digest() == before


@needs_a_library
def test_this_platforms_library_is_loaded() -> None:
    assert library.load() is not None


@needs_a_library
def test_a_library_of_other_sources_is_not_loaded(tmp_path: Path) -> None:
    stale = tmp_path / "scan.so"
    data = library.path_of(OWN).read_bytes()
    other = "0" * library.DIGEST_CHARS
    assert library.source_digest() != other
    stale.write_bytes(data.replace(library.source_digest().encode(), other.encode()))
    assert ctypes.PyDLL(str(stale)) is not None
    assert library.load(stale) is None


@pytest.mark.parametrize("content", [b"", b"no library at all", b"\x7fELF" + bytes(60)])
def test_what_is_no_library_is_not_loaded(tmp_path: Path, content: bytes) -> None:
    broken = tmp_path / "scan.so"
    broken.write_bytes(content)
    assert library.load(broken) is None


def test_a_platform_without_a_library_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert library.load() is None


def test_neither_matching_nor_a_gateway_imports_a_compiler() -> None:
    program = (
        "import sys, sparewatt.gateway.process, sparewatt.inference.matcher.match\n"
        "assert 'sparewatt.inference.matcher.kernel' in sys.modules\n"
        "print(sorted({'numba', 'llvmlite', 'sparewatt.inference.matcher.compiled'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"
