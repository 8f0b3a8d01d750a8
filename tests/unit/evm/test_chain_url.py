"""Which URLs of a chain are accepted."""

from __future__ import annotations

import pytest

from sparewatt.core.errors import StartupError
from sparewatt.evm.chain_url import check_chain_url


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8545", "http://localhost:1", "http://[::1]:2", "https://rpc.example/key"]
)
def test_a_chain_on_this_machine_or_over_tls_is_taken(url: str) -> None:
    assert check_chain_url(url) == url


@pytest.mark.parametrize(
    "url", ["http://rpc.example", "http://192.168.1.2:8545", "ws://127.0.0.1", "127.0.0.1:8545", ""]
)
def test_any_other_address_is_refused(url: str) -> None:
    with pytest.raises(StartupError):
        check_chain_url(url)
