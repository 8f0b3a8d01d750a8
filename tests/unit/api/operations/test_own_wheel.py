"""The wheel that a gateway packs of itself: reproducible, installable, without caches and without the dashboard."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from sparewatt import __version__
from sparewatt.api.operations.own_wheel import Wheel, _is_excluded, pack_own_wheel, pack_wheel


@pytest.fixture(scope="module")
def wheel() -> Wheel:
    packed = pack_own_wheel()
    assert packed is not None
    return packed


def test_the_same_files_give_the_same_bytes(wheel: Wheel) -> None:
    assert pack_own_wheel() == wheel
    assert hashlib.sha256(wheel.data).hexdigest() == wheel.sha256
    files = [("sparewatt/a.py", b"1"), ("sparewatt/b.py", b"2")]
    assert pack_wheel("1.0", files).data == pack_wheel("1.0", files[::-1]).data
    assert pack_wheel("1.0", files).data != pack_wheel("1.0", files[:1]).data


def test_the_wheel_has_the_program_and_nothing_of_this_machine(wheel: Wheel) -> None:
    with zipfile.ZipFile(BytesIO(wheel.data)) as archive:
        names = archive.namelist()
        assert {"sparewatt/cli/main.py", "sparewatt/store/migrations/0001_keys_tokens_nodes.sql"} <= set(names)
        assert f"sparewatt-{__version__}.dist-info/entry_points.txt" in names
        assert f"sparewatt-{__version__}.dist-info/licenses/LICENSE" in names
        assert not [name for name in names if "__pycache__" in name or name.startswith("/") or ".." in name]
        here = str(Path(__file__).parents[4]).encode()
        assert not [name for name in names if here in archive.read(name)]


def test_pip_installs_the_wheel_and_the_program_runs(wheel: Wheel, tmp_path: Path) -> None:
    file, target = tmp_path / wheel.name, tmp_path / "site"
    file.write_bytes(wheel.data)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-compile"]
    pip += ["--no-deps", "--no-index"]
    subprocess.run([*pip, "--target", target, file], check=True)
    argv = [sys.executable, "-c", "import sparewatt; print(sparewatt.__file__, sparewatt.__version__)"]
    ran = subprocess.run(argv, check=True, capture_output=True, text=True, env={"PYTHONPATH": str(target)})
    assert ran.stdout.split() == [str(target / "sparewatt" / "__init__.py"), __version__]


def test_neither_caches_nor_the_dashboard_are_packed() -> None:
    made = ("api/dashboard/dist/index.html", "api/dashboard/dist/assets/app.js", "gateway/__pycache__/http.pyc")
    assert all(_is_excluded(Path(path)) for path in made)
    assert not any(_is_excluded(Path(path)) for path in ("api/dashboard/pages.py", "store/migrations/0010_history.sql"))
