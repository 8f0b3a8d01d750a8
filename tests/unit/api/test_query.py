from __future__ import annotations

import pytest
from aiohttp.test_utils import make_mocked_request

from sparewatt.api.query import address_of
from sparewatt.core.errors import InvalidField


def test_an_address_comes_in_lower_case() -> None:
    assert address_of(make_mocked_request("GET", "/x?who=0x" + "aB" * 20), "who") == "0x" + "ab" * 20
    assert address_of(make_mocked_request("GET", "/x"), "who") is None


@pytest.mark.parametrize("text", ["", "0x12", "ab" * 20, "0x" + "zz" * 20, "0x" + "ab" * 21])
def test_what_is_no_address_is_refused_in_words(text: str) -> None:
    with pytest.raises(InvalidField, match="40 hex digits"):
        address_of(make_mocked_request("GET", f"/x?who={text}"), "who")
