"""Certificates for tests, made by `openssl`: self-signed, good for the names and addresses given."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Pair:
    cert: Path
    key: Path


def make_certificate(folder: Path, *names: str, stem: str = "gateway") -> Pair:
    """`names` are written as openssl wants them: `DNS:gateway.example`, `IP:10.0.0.1`."""
    folder.mkdir(parents=True, exist_ok=True)
    pair = Pair(folder / f"{stem}.crt", folder / f"{stem}.key")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-days", "30", "-subj", f"/CN={stem}", "-addext", f"subjectAltName={','.join(names)}"),
            *("-keyout", str(pair.key), "-out", str(pair.cert)),
        ],
        check=True,
        capture_output=True,
    )
    return pair
