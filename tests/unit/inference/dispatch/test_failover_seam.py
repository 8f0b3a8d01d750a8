from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparewatt.inference.dispatch.failover import StraddlingStop

letters = st.text("ab", max_size=8)


@given(letters, st.lists(st.text("ab", min_size=1, max_size=4), max_size=3), st.lists(letters, max_size=5))
def test_a_stop_text_is_found_if_and_only_if_it_begins_before_the_seam_and_ends_after_it(
    before: str, stops: list[str], pieces: list[str]
) -> None:
    if any(stop in before for stop in stops):
        return  # its own node would have stopped there
    watch = StraddlingStop(before, stops)
    for piece in pieces:
        watch.feed(piece)
    joined = before + "".join(pieces)
    found = [at for stop in stops for at in range(len(before)) if joined.startswith(stop, at)]
    assert (watch.state == "hit") is bool(found)


def test_without_stop_texts_there_is_nothing_to_wait_for() -> None:
    assert StraddlingStop("text", ()).state == "clear"
    assert StraddlingStop("", ("END",)).state == "clear"
    assert StraddlingStop("text", ("X",)).state == "clear"
