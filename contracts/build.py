"""Compiles the contracts into the package: one JSON artifact each, with its ABI and bytecode. `--check` only compares.

Functions and events are written once more, without bytecode, for the processes that only read the chain.

The build is reproducible: the bytes depend on the sources and the pinned compiler only. So no installation needs the
compiler, and anyone can verify a deployed contract.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vyper.cli.vyper_compile import compile_files
from vyper.compiler.settings import Settings
from vyper.exceptions import VyperException, VyperInternalException

ROOT = Path(__file__).resolve().parent.parent
ARTIFACTS = ROOT / "src" / "sparewatt" / "chain" / "artifacts"
READERS_ABI = ROOT / "src" / "sparewatt" / "evm" / "abi"
CODE_BYTES_MAX = 24_576  # EIP-170


def contract_paths() -> list[Path]:
    """The deployable contracts. Only they name an EVM version; modules and interfaces are compiled into them."""
    return sorted(path for path in (ROOT / "contracts").glob("*.vy") if "# pragma evm-version" in path.read_text())


def compiled(path: Path, *, experimental: bool = False) -> dict[str, Any]:
    settings = Settings(experimental_codegen=experimental)
    outputs = compile_files(
        [str(path)],
        ["abi", "bytecode", "bytecode_runtime"],
        paths=[str(ROOT)],
        include_sys_path=False,
        settings=settings,
        no_bytecode_metadata=True,
    )
    output = outputs[path]
    runtime_bytes = len(output["bytecode_runtime"]) // 2 - 1
    if runtime_bytes > CODE_BYTES_MAX:
        raise SystemExit(f"{path.name} has {runtime_bytes} bytes of code; a chain accepts at most {CODE_BYTES_MAX}")
    return {"abi": output["abi"], "bytecode": output["bytecode"], "contract": path.stem, "runtime_bytes": runtime_bytes}


def artifact_text(artifact: dict[str, Any]) -> str:
    return json.dumps(artifact, sort_keys=True, separators=(",", ":")) + "\n"


def readers_abi(artifact: dict[str, Any]) -> dict[str, Any]:
    """Of an ABI only what a reader of the chain needs: names and types of functions and events."""
    fields = ("type", "name", "inputs", "outputs")
    entries = [entry for entry in artifact["abi"] if entry["type"] in {"function", "event"}]
    return {"abi": [{field: entry[field] for field in fields if field in entry} for entry in entries]}


def artifact_texts() -> Iterator[tuple[Path, str]]:
    for path in contract_paths():
        artifact = compiled(path)
        yield ARTIFACTS / f"{path.stem}.json", artifact_text(artifact)
        yield READERS_ABI / f"{path.stem}.json", artifact_text(readers_abi(artifact))


def check() -> int:
    texts = dict(artifact_texts())
    stale = [path for path, text in texts.items() if not path.exists() or path.read_text() != text]
    extra = [path for folder in (ARTIFACTS, READERS_ABI) for path in folder.glob("*.json") if path not in texts]
    if stale or extra:
        names = sorted(str(path.relative_to(ROOT)) for path in stale + extra)
        print(f"These artifacts do not match the sources: {', '.join(names)}. Run: make contracts")
    return 1 if stale or extra else 0


def write() -> int:
    for path, text in artifact_texts():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if path.parent == ARTIFACTS:
            print(f"{path.stem:20} {json.loads(text)['runtime_bytes']:6} bytes")
    return 0


def write_experimental(folder: Path) -> int:
    """Compile with Vyper's experimental code generator, for tests only. Prints which contracts it cannot compile."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in contract_paths():
        try:
            (folder / f"{path.stem}.json").write_text(artifact_text(compiled(path, experimental=True)))
            print(f"{path.stem:20} compiled")
        except (VyperException, VyperInternalException) as error:
            print(f"{path.stem:20} refused: {type(error).__name__}: {str(error).splitlines()[0]}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--experimental", type=Path, metavar="FOLDER", help="compile with the experimental generator")
    arguments = parser.parse_args()
    if arguments.experimental:
        return write_experimental(arguments.experimental)
    return check() if arguments.check else write()


if __name__ == "__main__":
    sys.exit(main())
