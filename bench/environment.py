"""Names the Python environment that a benchmark ran in: figures of the test environment are not what users get."""

from __future__ import annotations

import sys
from collections.abc import Collection
from importlib.metadata import distributions
from pathlib import Path

from sparewatt.inference.matcher import kernel

TEST_TOOL = "pytest"


def describe() -> str:
    """One sentence for a report."""
    return sentence(Path(sys.prefix).name, {one.name.lower() for one in distributions()}, compiled=kernel.ready())


def sentence(environment: str, packages: Collection[str], *, compiled: bool) -> str:
    kind = "the test environment" if TEST_TOOL in packages else "as `make setup` makes it, without the test tools"
    numba = "with" if "numba" in packages else "without"
    scan = "the compiled one of the package" if compiled else "numpy's: the package has no compiled one for it"
    return (
        f"Environment: `{environment}`, {len(packages)} packages, {kind}, {numba} numba; the matcher's scan is {scan}."
    )
