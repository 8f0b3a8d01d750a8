from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path, PurePosixPath
from typing import Any

from sparewatt.node.serving_image.image_archive import MODEL_LABEL, WEIGHTS_LABEL, write_image
from sparewatt.node.serving_image.image_store import image_tag
from sparewatt.node.serving_image.weights import ModelWeights


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
