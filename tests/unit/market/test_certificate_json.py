from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from sparewatt.core.errors import InvalidField
from sparewatt.market.certificate_json import read_certificate
from sparewatt.protocol.contracts.match_messages import write_object
from tests.unit.leasing.relay.auction import VOTE_KEYS, Auction

TRUE = replace(Auction().certificate(), signers=tuple(each.address for each in VOTE_KEYS))
WRITTEN: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(write_object(TRUE)))


def test_a_certificate_is_read_as_it_was_written_but_for_the_signers_that_it_claims() -> None:
    assert read_certificate(WRITTEN) == replace(TRUE, signers=())
    assert read_certificate({**WRITTEN, "signers": ["0xanybody"] * 1_000}) == replace(TRUE, signers=())


def changed(**members: Any) -> dict[str, Any]:
    return {**copy.deepcopy(WRITTEN), **members}


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        changed(paths=[["0x12"]]),
        changed(paths="0x"),
        changed(round=-1),
        changed(votes=[{}]),
        changed(extra=1),
        changed(task={**WRITTEN["task"], "bidCount": "2"}),
    ],
)
def test_what_has_another_form_is_refused(document: Any) -> None:
    with pytest.raises(InvalidField):
        read_certificate(document)
