"""Sealed secrets open for the node key, order, attempt and provider that they were sealed to, and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparewatt.core.rng import seeded
from sparewatt.protocol.contracts.sealed_secrets import SECRET_BYTES_MAX, SecretContext, open_secret, seal_secret
from sparewatt.protocol.signing import SigningKey, recover_public_key

NODE, OTHER, EPHEMERAL = (SigningKey.generate(rng=seeded(n)) for n in (1, 2, 3))
CONTEXT = SecretContext(order_id=b"\7" * 32, attempt=1, provider="0x" + "ab" * 20)
SEALED = seal_secret(b"token=1", to_public_key=NODE.public_key, context=CONTEXT, ephemeral=EPHEMERAL)


def test_the_node_reads_what_was_sealed_to_it() -> None:
    assert open_secret(SEALED, node_key=NODE, context=CONTEXT) == b"token=1"
    assert b"token" not in SEALED
    assert len(SEALED) == 33 + len(b"token=1") + 16


def test_the_key_comes_from_the_signature_of_a_commit() -> None:
    digest = b"\5" * 32
    public_key = recover_public_key(digest, NODE.sign(digest))
    assert public_key == NODE.public_key
    sealed = seal_secret(b"", to_public_key=public_key, context=CONTEXT, ephemeral=EPHEMERAL)
    assert open_secret(sealed, node_key=NODE, context=CONTEXT) == b""


def test_both_ends_of_an_exchange_have_the_same_secret() -> None:
    assert EPHEMERAL.shared_secret(NODE.public_key) == NODE.shared_secret(EPHEMERAL.public_key)
    assert len(EPHEMERAL.shared_secret(NODE.public_key)) == 32
    assert EPHEMERAL.shared_secret(NODE.public_key) != EPHEMERAL.shared_secret(OTHER.public_key)


@pytest.mark.parametrize(
    "change", [{"order_id": b"\6" * 32}, {"attempt": 0}, {"attempt": 2}, {"provider": "0x" + "ac" * 20}]
)
def test_another_auction_or_provider_does_not_open_it(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="MAC"):
        open_secret(SEALED, node_key=NODE, context=replace(CONTEXT, **change))


def test_another_node_does_not_open_it() -> None:
    with pytest.raises(ValueError, match="MAC"):
        open_secret(SEALED, node_key=OTHER, context=CONTEXT)


@pytest.mark.parametrize("place", [0, 1, 32, 33, 40, -16, -1])
def test_a_changed_bit_is_found(place: int) -> None:
    bent = bytearray(SEALED)
    bent[place] ^= 1
    with pytest.raises(ValueError, match=r".+"):
        assert open_secret(bytes(bent), node_key=NODE, context=CONTEXT) == b""


@pytest.mark.parametrize("sealed", [b"", SEALED[:48], bytes(33 + 16), SEALED + bytes(SECRET_BYTES_MAX)])
def test_what_is_no_sealed_secret_is_refused(sealed: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        open_secret(sealed, node_key=NODE, context=CONTEXT)


def test_a_secret_has_an_upper_bound() -> None:
    longest = seal_secret(bytes(SECRET_BYTES_MAX), to_public_key=NODE.public_key, context=CONTEXT, ephemeral=EPHEMERAL)
    assert open_secret(longest, node_key=NODE, context=CONTEXT) == bytes(SECRET_BYTES_MAX)
    with pytest.raises(ValueError, match="at most"):
        seal_secret(bytes(SECRET_BYTES_MAX + 1), to_public_key=NODE.public_key, context=CONTEXT, ephemeral=EPHEMERAL)
