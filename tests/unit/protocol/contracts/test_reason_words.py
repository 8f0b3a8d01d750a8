from __future__ import annotations

import pytest

from sparewatt.protocol.contracts.reason_words import count_in_words
from sparewatt.protocol.contracts.reasons import BidStatus, DeclineReason, MessageRefusal

NOT_ABOUT_BIDS = {"ELIGIBLE", "STALE_CHALLENGE"}


@pytest.mark.parametrize(
    ("reason", "count", "words"),
    [
        ("UNREVEALED", 3, "3 bids were not revealed"),
        ("UNREVEALED", 1, "1 bid was not revealed"),
        ("BUSY", 2, "2 providers were busy"),
        ("VRAM", 3, "3 providers have too little GPU memory"),
        ("VRAM", 1, "1 provider has too little GPU memory"),
        ("PRICE", 3, "3 providers asked more than the highest price"),
        ("OTHER", 1, "1 provider does not offer such a lease"),
        ("OTHER", 2, "2 providers do not offer such a lease"),
        ("HALTED", 2, "2 HALTED"),
    ],
)
def test_a_count_is_a_clause_with_its_subject(reason: str, count: int, words: str) -> None:
    assert count_in_words(reason, count) == words


def test_every_reason_of_bids_and_providers_has_words() -> None:
    names = {each.name for codes in (BidStatus, MessageRefusal, DeclineReason) for each in codes} - NOT_ABOUT_BIDS
    assert [name for name in sorted(names) if name in count_in_words(name, 1)] == []
