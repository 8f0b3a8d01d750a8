"""Compiles the matcher's scan into the package: one shared library per platform. `--check` only compares.

numba compiles the functions of `sparewatt.inference.matcher.compiled`, llvmlite emits them for each platform, and zig's
linker makes the library, which imports nothing. The build is reproducible on Linux x86-64: the bytes depend on the
sources and the pinned tools only. So no installation needs a compiler, and nothing is compiled when a gateway starts.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import numba

from sparewatt.inference.matcher import compiled, library

BUILT_FOR_CPU = "x86-64-v2"
"""What LLVM vectorises for: no features of the machine that builds. numpy's own wheels need as much."""
LIBRARY_BYTES_MAX = 64_000


class Platform(NamedTuple):
    """A platform that gets a library, in the words of Python, LLVM and zig."""

    name: str
    triple: str
    cpu: str
    zig_target: str


PLATFORMS = (
    Platform("linux-x86_64", "x86_64-unknown-linux-gnu", BUILT_FOR_CPU, "x86_64-linux-gnu"),
    Platform("linux-aarch64", "aarch64-unknown-linux-gnu", "generic", "aarch64-linux-gnu"),
)


def scan_ir() -> tuple[str, str]:
    """LLVM's text of the scan, optimised, and the name of its function there."""
    config: Any = numba.config
    config.CPU_NAME, config.CPU_FEATURES = BUILT_FOR_CPU, ""
    compiled.entry.compile("int64(int64)")
    ((signature, text),) = compiled.entry.inspect_llvm().items()
    overload: Any = compiled.entry.overloads[signature]
    return text, overload.fndesc.llvm_func_name


def emit_object(text: str, function: str, platform: Platform) -> bytes:
    """The function alone, under the name that `library` looks for, as an object file."""
    target = llvm.Target.from_triple(platform.triple)
    machine = target.create_target_machine(cpu=platform.cpu, opt=3, reloc="pic", codemodel="small")
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = platform.triple, str(machine.target_data)
    entry = module.get_function(function)
    for value in (*module.functions, *module.global_variables):
        if not value.is_declaration and value.name != function:
            value.linkage = "internal"
    entry.name = library.entry_name()
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
    code: bytes = machine.emit_object(module)
    return code


def link(code: bytes, platform: Platform) -> bytes:
    """The object as a shared library that needs no other."""
    with tempfile.TemporaryDirectory(prefix="sparewatt-scan-") as folder:
        source, output = Path(folder, "scan.o"), Path(folder, "scan.so")
        source.write_bytes(code)
        zig = (sys.executable, "-m", "ziglang", "cc", "-target", platform.zig_target)
        options = ("-shared", "-nostdlib", "-s", "-Wl,--no-undefined", "-Wl,-soname,scan.so", "-Wl,--build-id=none")
        subprocess.run([*zig, *options, source, "-o", output], check=True, cwd=folder)
        data = output.read_bytes()
    if len(data) > LIBRARY_BYTES_MAX:
        raise SystemExit(f"The library for {platform.name} has {len(data)} bytes, more than {LIBRARY_BYTES_MAX}.")
    return data


def libraries() -> Iterator[tuple[Path, bytes]]:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    text, function = scan_ir()
    for platform in PLATFORMS:
        yield library.path_of(platform.name), link(emit_object(text, function, platform), platform)


def check(built: dict[Path, bytes]) -> int:
    stale = [path.name for path, data in built.items() if not path.exists() or path.read_bytes() != data]
    if stale:
        print(f"Not what the sources give: {', '.join(stale)}. Run `make scan`.", file=sys.stderr)
    return 1 if stale else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    built = dict(libraries())
    if options.check:
        return check(built)
    for path, data in built.items():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        print(f"{path.name}: {len(data):,} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
