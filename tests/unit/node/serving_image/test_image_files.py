"""What is put into the image. That it serves is tried in tests/integration, in a real container."""

from __future__ import annotations

import sys
from pathlib import PurePosixPath

import pytest

from sparewatt.core.errors import StartupError
from sparewatt.node.serving_image import image_files
from sparewatt.node.serving_image.image_files import collect_files, python_program, required_packages, requirements


def test_requirements_are_those_of_the_package_and_of_the_wanted_extra() -> None:
    lines = [
        "click>=8.2",
        "aiohttp[speedups]>=3 ; extra == 'serve'",
        'pytest; extra == "dev"',
        "winloop; sys_platform == 'win32'",
        "!",
    ]
    assert requirements(lines, None) == [("click", None), ("winloop", None)]
    assert requirements(lines, "serve")[1:3] == [("aiohttp", None), ("aiohttp", "speedups")]


def test_the_image_has_what_a_serving_node_loads_and_nothing_of_tests_or_gateways() -> None:
    names = {package.name.lower() for package in required_packages()}
    assert names >= {"sparewatt", "xllamacpp", "aiohttp", "msgspec", "click", "coincurve"}
    assert not names & {"pytest", "asyncpg", "web3", "mypy", "aiodocker"}


@pytest.mark.skipif(sys.platform != "linux", reason="images are made on Linux")
def test_python_its_library_its_packages_and_their_libraries_are_collected() -> None:
    found = collect_files()
    assert PurePosixPath(python_program()) in found
    assert PurePosixPath("/app/sparewatt/node/agent.py") in found
    assert any(name.name.startswith("libc.so") for name in found)
    assert any(name.name == "asyncio" or "asyncio" in name.parts for name in found)
    assert not [name for name in found if name.parts[1] == "home" or name.suffix == ".pth" or "pytest" in name.parts]


def test_without_llama_there_is_no_image_and_the_remedy_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    real = image_files._installed
    monkeypatch.setattr(image_files, "_installed", lambda name: None if name == "xllamacpp" else real(name))
    with pytest.raises(StartupError, match="pip install xllamacpp"):
        required_packages()
