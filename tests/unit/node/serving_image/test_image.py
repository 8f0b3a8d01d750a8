"""What is put into the image. That it serves is tried in tests/integration, in a real container."""

from __future__ import annotations

import hashlib
import json
import sys
import tarfile
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from sparewatt.core.errors import StartupError
from sparewatt.node.serving_image import image_files
from sparewatt.node.serving_image.image_archive import MODEL_LABEL, WEIGHTS_LABEL, write_image
from sparewatt.node.serving_image.image_files import collect_files, python_program, required_packages, requirements
from sparewatt.node.serving_image.image_store import image_tag
from sparewatt.node.serving_image.weights import ModelWeights


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


def test_an_archive_is_as_engines_load_it(tmp_path: Path) -> None:
    program, model = tmp_path / "program", tmp_path / "model.gguf"
    program.write_bytes(b"program")
    program.chmod(0o700)
    model.write_bytes(b"GGUF")
    files = {PurePosixPath("/bin/program"): program}
    write_image(tmp_path, files, ModelWeights("mine", model), python=Path("/bin/program"), tag=image_tag("mine"))
    with tarfile.open(tmp_path / "image.tar") as tar:
        parts: dict[str, bytes] = {}
        for member in tar.getmembers():
            opened = tar.extractfile(member)
            assert opened is not None
            parts[member.name] = opened.read()
    (manifest,) = json.loads(parts["manifest.json"])
    config: dict[str, Any] = json.loads(parts[manifest["Config"]])
    digests = [f"sha256:{hashlib.sha256(parts[name]).hexdigest()}" for name in manifest["Layers"]]
    assert config["rootfs"]["diff_ids"] == digests
    assert manifest["RepoTags"] == ["localhost/sparewatt-serve:mine"]
    assert config["config"]["Entrypoint"] == ["/bin/program", "-m", "sparewatt", "node", "join"]
    assert config["config"]["Labels"].items() >= {MODEL_LABEL: "mine", WEIGHTS_LABEL: "4"}.items()
    assert not any("TOKEN" in each for each in config["config"]["Env"]), "an image has no secret in it"


def test_programs_may_be_run_and_belong_to_root(tmp_path: Path) -> None:
    program, model = tmp_path / "program", tmp_path / "model.gguf"
    program.write_bytes(b"program")
    program.chmod(0o700)
    model.write_bytes(b"GGUF")
    files = {PurePosixPath("/bin/program"): program, PurePosixPath("/etc/text"): model}
    write_image(tmp_path, files, ModelWeights("mine", model), python=program, tag=image_tag("mine"))
    with tarfile.open(tmp_path / "image.tar") as tar:
        layer = tar.extractfile(tar.getmembers()[0])
        assert layer is not None
        with tarfile.open(fileobj=layer) as inner:
            modes = {member.name: (member.mode, member.uid) for member in inner.getmembers()}
    assert modes == {"data": (0o755, 0), "bin/program": (0o755, 0), "etc/text": (0o644, 0)}


def test_a_models_name_becomes_a_tag() -> None:
    assert image_tag("Org/Model:7B") == "localhost/sparewatt-serve:org-model-7b"
