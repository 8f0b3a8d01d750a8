"""Settings that do not go together are refused before anything is signed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparewatt.core.errors import StartupError
from sparewatt.machine.stranger_http import PRIVATE_TOO, PUBLIC_ONLY
from sparewatt.validator.settings import ValidatorSettings

USUAL = ValidatorSettings(Path("data"), "http://127.0.0.1:8545", Path("contracts.json"))


def test_a_validator_on_loopback_needs_nothing_more() -> None:
    USUAL.check()
    assert USUAL.tls() is None
    assert USUAL.dial_rules is PRIVATE_TOO
    assert USUAL.url(8700) == "http://127.0.0.1:8700"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"host": "0.0.0.0"}, "without TLS"),  # noqa: S104
        ({"host": "validator.example"}, "without TLS"),
        ({"tls_cert": Path("a.pem")}, "go together"),
        ({"tls_key": Path("a.pem")}, "go together"),
        ({"behind_proxy": True}, "--public-url"),
        ({"chain_url": "http://rpc.example"}, "plain http"),
        ({"chain_url": "ws://127.0.0.1"}, "JSON-RPC endpoint"),
        ({"chain_url": "https://"}, "JSON-RPC endpoint"),
    ],
)
def test_what_does_not_go_together_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(StartupError, match=words):
        replace(USUAL, **changes).check()


@pytest.mark.parametrize(
    "changes",
    [
        {"host": "0.0.0.0", "behind_proxy": True, "public_url": "https://v.example"},  # noqa: S104
        {"host": "::", "tls_cert": Path("a.pem"), "tls_key": Path("b.pem")},
        {"chain_url": "https://rpc.example"},
        {"chain_url": "http://localhost:8545"},
    ],
)
def test_what_goes_together_is_taken(changes: dict[str, Any]) -> None:
    replace(USUAL, **changes).check()


def test_what_is_registered_is_what_others_dial() -> None:
    assert replace(USUAL, public_url="https://v.example/").url(1) == "https://v.example"
    assert replace(USUAL, host="::1").url(5) == "http://[::1]:5"
    secured = replace(USUAL, host="v.example", tls_cert=Path("a"), tls_key=Path("b"))
    assert secured.url(8700) == "https://v.example:8700"


def test_private_peers_are_dialled_on_loopback_or_if_asked_to() -> None:
    public = replace(USUAL, host="0.0.0.0")  # noqa: S104
    assert public.dial_rules is PUBLIC_ONLY
    assert replace(public, private_peers=True).dial_rules is PRIVATE_TOO
    assert replace(USUAL, private_peers=False).dial_rules is PUBLIC_ONLY


def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cert.pem"
    path.write_text("no certificate")
    with pytest.raises(StartupError, match=r"cert\.pem cannot be used"):
        replace(USUAL, tls_cert=path, tls_key=path).tls()
    with pytest.raises(StartupError, match="cannot be used"):
        replace(USUAL, tls_cert=tmp_path / "none", tls_key=path).tls()
