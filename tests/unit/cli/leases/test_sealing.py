"""What the renter's command seals opens at the candidate's node only, and which chain checks the candidates."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparewatt.cli.client import ApiClient
from sparewatt.cli.leases import sealing
from sparewatt.cli.leases.sealing import chain_of, seal_all
from sparewatt.core.rng import seeded
from sparewatt.market.secret_recipients import SecretRecipient
from sparewatt.protocol.contracts.sealed_secrets import SecretContext, open_secret, read_named_secret
from sparewatt.protocol.signing import SigningKey

ALICE, BOB = (SigningKey.generate(rng=seeded(number)) for number in (1, 2))
PROVIDERS = {"0x" + "a1" * 20: ALICE, "0x" + "b2" * 20: BOB}
ORDER_ID = b"\7" * 32
HERE = cast("ApiClient", SimpleNamespace(base_url="http://127.0.0.1:1/v1"))


def sealed() -> dict[str, dict[str, str]]:
    recipients = [SecretRecipient(provider, key.address, key.public_key) for provider, key in PROVIDERS.items()]
    values = {"TOKEN": "hunter2", "OTHER": "x"}
    return seal_all(dict.fromkeys(PROVIDERS, values), recipients, order_id=ORDER_ID, attempt=0)


def opened(text: str, key: SigningKey, provider: str, *, attempt: int = 0) -> bytes:
    context = SecretContext(ORDER_ID, attempt, provider)
    return open_secret(bytes.fromhex(text[2:]), node_key=key, context=context)


def test_candidates_may_be_given_values_of_their_own() -> None:
    recipients = [SecretRecipient(provider, key.address, key.public_key) for provider, key in PROVIDERS.items()]
    values = {provider: {"TOKEN": f"join-{number}"} for number, provider in enumerate(PROVIDERS)}
    made = seal_all(values, recipients, order_id=ORDER_ID, attempt=0)
    found = [read_named_secret(opened(made[each]["TOKEN"], key, each), "TOKEN") for each, key in PROVIDERS.items()]
    assert found == ["join-0", "join-1"]


def test_each_candidate_opens_its_own_and_no_other() -> None:
    made = sealed()
    for provider, key in PROVIDERS.items():
        assert read_named_secret(opened(made[provider]["TOKEN"], key, provider), "TOKEN") == "hunter2"
        with pytest.raises(ValueError, match="another name"):
            read_named_secret(opened(made[provider]["OTHER"], key, provider), "TOKEN")
        with pytest.raises(ValueError, match="MAC"):
            opened(made[provider]["TOKEN"], key, provider, attempt=1)
    with pytest.raises(ValueError, match="MAC"):
        opened(made["0x" + "a1" * 20]["TOKEN"], BOB, "0x" + "a1" * 20)


def test_nothing_of_a_value_is_in_what_is_sent_and_no_two_are_alike() -> None:
    first, second = sealed(), sealed()
    assert b"hunter2".hex() not in str(first)
    texts = [text for made in (first, second) for by_name in made.values() for text in by_name.values()]
    assert len(set(texts)) == len(texts)


def started(monkeypatch: pytest.MonkeyPatch, **ready: Any) -> None:
    monkeypatch.setattr(sealing, "last_started_network", lambda: (Path("ready.json"), ready))
    monkeypatch.delenv("CHAIN_URL", raising=False)


def test_the_chain_of_a_network_on_this_machine_is_used_for_that_network_only(monkeypatch: pytest.MonkeyPatch) -> None:
    started(monkeypatch, base_url="http://127.0.0.1:1/v1", chain_url="http://127.0.0.1:8545")
    assert chain_of(HERE, None) == "http://127.0.0.1:8545"
    assert chain_of(HERE, "http://mine") == "http://mine"
    started(monkeypatch, base_url="http://127.0.0.1:2/v1", chain_url="http://127.0.0.1:8545")
    assert chain_of(HERE, None) is None
    monkeypatch.setenv("CHAIN_URL", "http://by-environment")
    assert chain_of(HERE, None) == "http://by-environment"
