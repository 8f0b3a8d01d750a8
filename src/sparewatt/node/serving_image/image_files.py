"""What goes into the image: this Python, the packages that a serving node needs, and the libraries that they load.

Python and libraries keep their places; packages are put into one folder. Nothing of the user's own is taken: only
files of Python's installation, of installed packages and of the system's libraries.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import ssl
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

import sparewatt
from sparewatt.core.errors import StartupError

PACKAGES = "/app"
"""Where packages are in the image."""
ROOT, EXTRA = "sparewatt", "serve"
LDD_S = 60.0
FILES_MAX = 50_000
ELF_MAGIC = b"\x7fELF"
_LEFT_OUT = frozenset(
    {"site-packages", "dist-packages", "test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3"}
)
"""Of Python's own library: a node needs none of it."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")
_WANTED_EXTRAS = re.compile(r"\[([^\]]*)\]")
_LIBRARY = re.compile(r"^\s*(?:\S+ => )?(/\S+) \(0x", re.MULTILINE)
_NAME_SERVICES = ("libnss_files.so.2", "libnss_dns.so.2")
"""Which a C library of before 2021 opens by name."""

ImageFiles = dict[PurePosixPath, Path]
"""By their path in the image."""


def python_program() -> Path:
    """This Python itself, not a virtual environment's link to it."""
    return Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))


def collect_files() -> ImageFiles:
    """Everything but the weights. Raises StartupError if something that a serving node needs is not installed."""
    found: ImageFiles = {}
    program = python_program()
    found[PurePosixPath(program)] = program
    for file in _standard_library():
        found[PurePosixPath(file)] = file
    found |= package_files(required_packages())
    found |= _libraries(found.values())
    for name in (ssl.get_default_verify_paths().openssl_cafile, "/etc/ld.so.cache"):
        if name and Path(name).is_file():
            found[PurePosixPath(name)] = Path(name)
    if len(found) > FILES_MAX:
        raise StartupError(f"The image would have {len(found):,} files; {FILES_MAX:,} are allowed.")
    return found


def required_packages() -> list[importlib.metadata.Distribution]:
    """Of a node that serves, with what they need themselves. Raises StartupError."""
    todo: list[tuple[str, str | None]] = [(ROOT, None), (ROOT, EXTRA)]
    seen: dict[tuple[str, str | None], importlib.metadata.Distribution] = {}
    while todo:
        name, extra = todo.pop()
        key = (re.sub(r"[-_.]+", "-", name).lower(), extra)
        if key in seen:
            continue
        package = _installed(name)
        if package is None:
            continue  # for another platform; what must be there is checked below
        seen[key] = package
        todo += requirements(package.requires or (), extra)
    if not any(name == "xllamacpp" for name, _ in seen):
        raise StartupError("An image that serves needs llama.cpp, which is not installed here: pip install xllamacpp")
    return list({package.name: package for package in seen.values()}.values())


def requirements(lines: Iterable[str], extra: str | None) -> list[tuple[str, str | None]]:
    """Names in lines of a package's metadata, each also with the extras that it is wanted with. Pure."""
    wanted: list[tuple[str, str | None]] = []
    for line in lines:
        head, _, marker = line.partition(";")
        of_extra = _EXTRA.search(marker)
        name = _NAME.match(head.strip())
        if name is None or (of_extra is not None and of_extra[1] != extra):
            continue
        extras = _WANTED_EXTRAS.search(head)
        wanted.append((name[0], None))
        wanted += [(name[0], each.strip()) for each in (extras[1].split(",") if extras else ()) if each.strip()]
    return wanted


def package_files(packages: Iterable[importlib.metadata.Distribution]) -> ImageFiles:
    found: ImageFiles = {}
    for package in packages:
        for file in package.files or ():
            place = Path(os.path.realpath(str(package.locate_file(file))))
            if ".." not in file.parts and file.suffix != ".pth" and place.is_file():
                found[PurePosixPath(PACKAGES, *file.parts)] = place
    own = Path(sparewatt.__file__).parent  # it may be installed as a link to its sources
    for place in sorted(own.rglob("*")):
        if place.is_file():
            found[PurePosixPath(PACKAGES, ROOT, *place.relative_to(own).parts)] = place
    return found


def _installed(name: str) -> importlib.metadata.Distribution | None:
    try:
        return importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _standard_library() -> Iterator[Path]:
    folder = Path(sysconfig.get_path("stdlib"))
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(each for each in folders if each not in _LEFT_OUT and not each.startswith("config-"))
        for name in sorted(files):
            file = Path(place, name)
            if file.is_file():
                yield file


def _libraries(files: Iterable[Path]) -> ImageFiles:
    """What the system's loader would load for these programs and modules, at the same places."""
    programs = [file for file in files if is_elf(file)]
    found: ImageFiles = {}
    for number in range(0, len(programs), 64):
        words = ["ldd", *map(str, programs[number : number + 64])]
        try:
            done = subprocess.run(  # noqa: S603 (files of installed packages)
                words, capture_output=True, text=True, check=False, timeout=LDD_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise StartupError(f"'ldd', which tells what libraries a program needs, cannot be run ({error}).") from None
        for name in _LIBRARY.findall(done.stdout):
            found[PurePosixPath(name)] = Path(name)
    inside = {os.path.realpath(file) for file in programs}
    found = {name: file for name, file in found.items() if os.path.realpath(file) not in inside}
    for libc in [file for file in found.values() if file.name.startswith("libc.so")]:
        found |= {PurePosixPath(libc.parent, name): libc.parent / name for name in _NAME_SERVICES}
    return {name: file for name, file in found.items() if file.is_file()}


def is_elf(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            return opened.read(len(ELF_MAGIC)) == ELF_MAGIC
    except OSError:
        return False
