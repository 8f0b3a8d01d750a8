"""Settlement roots equal those of the compiled contract, leaf by leaf."""

from __future__ import annotations

import pytest

from sparewatt.protocol.contracts.payouts import PayoutEntry, settlement_tree

ROOTS = {
    1: "7e9bd0666d247483309f190e3163a13244e0d5a2bf0dda35a7b40264c96811f0",
    2: "cf26be59ae79221cb3cff26e051c77c2d53965c8f74351551f67218ffc6fc898",
    3: "aba7aadb6a2488af3216b4b33a9b441a7727ded7116a801e6e3e26e90df2d824",
    5: "438fd87d103bbf4d0572bc5c969de311dc3c869341196033da3e54288c414d6a",
    8: "d199089d1a3c8642a42aaaac28aca5ace617fa51ff13c7a265f43992a0fc8c85",
    13: "de8853712b866d688dcde121d5ff458a17d0ca1bc88dbf9286f0c8e966f94497",
}


def entries(count: int) -> list[PayoutEntry]:
    return [PayoutEntry(f"0x{(i + 1) * 7919:040x}", 10**6 * i + i, 3 * i) for i in range(count)]


@pytest.mark.parametrize(("count", "root"), ROOTS.items())
def test_the_root_is_that_of_the_contract(count: int, root: str) -> None:
    assert settlement_tree(entries(count)).root.hex() == root


def test_entries_that_do_not_ascend_are_refused() -> None:
    with pytest.raises(ValueError, match="ascend"):
        settlement_tree(entries(3)[::-1])
