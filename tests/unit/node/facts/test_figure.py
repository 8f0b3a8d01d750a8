from __future__ import annotations

from sparewatt.node.facts.figure import Figure, first_known


def test_the_first_source_with_a_value_counts() -> None:
    assert first_known(("owner", None), ("server", 0), ("learned", 7), ("default", 256)) == Figure(7, "learned")


def test_without_any_value_there_is_no_figure() -> None:
    assert first_known(("owner", None), ("server", 0)) is None
    assert first_known(("server", -1), ("default", 4)) == Figure(4, "default")
    assert first_known(("server", ""), ("model name", "int4")) == Figure("int4", "model name")
