"""Compiles `native/probe.c` into the package: one static program per platform. `--check` only compares.

zig brings the compiler for all of them, so the build is reproducible on Linux x86-64: the bytes depend on the source
and the pinned tool only. The program needs no library, so that an image can be made of nothing but it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from sparewatt.node.leases.runtime import probe_image

SOURCE = Path(__file__).with_name("probe.c")
ZIG_TARGETS = {"x86_64": "x86_64-linux-none", "aarch64": "aarch64-linux-none"}
"""By the names of Python's `platform.machine`."""
OPTIONS = (
    *("-static", "-nostdlib", "-ffreestanding", "-fno-builtin", "-Os", "-Wall", "-Wextra", "-Werror"),
    *("-fno-sanitize=all", "-fno-stack-protector", "-fno-unwind-tables", "-fno-asynchronous-unwind-tables"),
    *("-s", "-Wl,--build-id=none"),
)
PROGRAM_BYTES_MAX = 16_000


def compiled(target: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="sparewatt-probe-") as folder:
        output = Path(folder, "probe")
        # Under a fixed name, in its own folder: no path of this machine gets into the bytes.
        Path(folder, SOURCE.name).write_bytes(SOURCE.read_bytes())
        digest = f'-DSOURCE="{probe_image.source_digest(SOURCE)}"'
        zig = (sys.executable, "-m", "ziglang", "cc", "-target", target)
        subprocess.run([*zig, *OPTIONS, digest, SOURCE.name, "-o", output], check=True, cwd=folder)
        data = output.read_bytes()
    if len(data) > PROGRAM_BYTES_MAX:
        raise SystemExit(f"The program for {target} has {len(data)} bytes, more than {PROGRAM_BYTES_MAX}.")
    return data


def programs() -> Iterator[tuple[Path, bytes]]:
    for machine, target in ZIG_TARGETS.items():
        yield probe_image.program_path(machine), compiled(target)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    stale = []
    for path, data in programs():
        if options.check:
            stale += [path.name] if not path.exists() or path.read_bytes() != data else []
            continue
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        print(f"{path.name}: {len(data):,} bytes")
    if stale:
        print(f"Not what the source gives: {', '.join(stale)}. Run `make probe`.", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
