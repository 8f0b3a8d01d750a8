"""What was put into generations stays for a while, and no longer than twice that."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparewatt.core.generations import Generations

PERIOD_S, SIZE = 10.0, 6
steps = st.lists(
    st.tuples(st.sampled_from(["put", "pop", "wait"]), st.integers(0, 9), st.floats(0.0, 12.0)), max_size=60
)


@given(steps)
def test_an_entry_stays_for_a_period_and_is_gone_after_two(taken: list[tuple[str, int, float]]) -> None:
    found: Generations[int, int] = Generations(period_s=PERIOD_S, size_max=1_000)
    put_at: dict[int, float] = {}
    now_s = 0.0
    for step, key, wait_s in taken:
        match step:
            case "put":
                found.put(key, key + 1, now_s=now_s)
                put_at[key] = now_s
            case "pop":
                age_s = now_s - put_at.pop(key, -1e9)
                popped = found.pop(key)
                assert popped == key + 1 if age_s < PERIOD_S else popped in {None, key + 1}
            case _:
                now_s += wait_s
                found.forget_old(now_s)
        for each, at_s in put_at.items():
            assert each in found or now_s - at_s >= PERIOD_S
            assert each not in found or now_s - at_s < 2 * PERIOD_S


@given(st.lists(st.integers(), max_size=40))
def test_there_are_never_more_than_so_many(keys: list[int]) -> None:
    found: Generations[int, None] = Generations(period_s=PERIOD_S, size_max=SIZE)
    for key in keys:
        found.put(key, None, now_s=0.0)
        assert len(found) <= SIZE
        assert key in found


def test_nothing_is_left_when_nothing_comes() -> None:
    found: Generations[int, int] = Generations(period_s=PERIOD_S, size_max=SIZE)
    found.put(1, 1, now_s=5.0)
    found.forget_old(5.0 + PERIOD_S)
    assert (len(found), found.pop(2)) == (1, None)
    found.forget_old(5.0 + 2 * PERIOD_S)
    assert len(found) == 0
    found.put(1, 1, now_s=1e6)
    assert 1 in found
