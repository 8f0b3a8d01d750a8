from __future__ import annotations

import pytest

from sparewatt.core.errors import RetentionForbidden
from sparewatt.inference.responses.retention import Lifetime, lifetime_of, retention_note
from sparewatt.policy.model import Retention


@pytest.mark.parametrize(
    ("store", "allowed", "lifetime"),
    [
        (None, "day", "hour"),
        (None, "hour", "hour"),
        (None, "none", None),
        (True, "day", "day"),
        (False, "day", None),
        (False, "none", None),
    ],
)
def test_a_response_is_kept_as_its_request_says_and_policies_allow(
    *, store: bool | None, allowed: Retention, lifetime: Lifetime | None
) -> None:
    assert lifetime_of(store=store, allowed=allowed, has_key=True) == lifetime


@pytest.mark.parametrize("allowed", ["none", "hour"])
def test_a_request_that_asks_for_more_is_told_which_policy_holds(allowed: Retention) -> None:
    with pytest.raises(RetentionForbidden, match=f"retention={allowed}") as caught:
        lifetime_of(store=True, allowed=allowed, has_key=True)
    assert caught.value.param == "store"
    assert f"retention={allowed}" in retention_note(allowed)


def test_without_a_key_nothing_is_kept() -> None:
    assert lifetime_of(store=None, allowed="day", has_key=False) is None
