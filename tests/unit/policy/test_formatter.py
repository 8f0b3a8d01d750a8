from __future__ import annotations

from sparewatt.policy.formatter import to_line, to_object
from sparewatt.policy.model import ANY
from sparewatt.policy.parser import read_line


def test_an_empty_policy_is_an_empty_line_and_amounts_are_exact_strings() -> None:
    assert to_line(ANY) == ""
    assert to_object(read_line("max_price=0.30")) == {"max_price": "0.3"}


def test_a_region_is_written_in_the_fewest_words() -> None:
    assert to_line(read_line("region=EEA,EU,DE,US")) == "region=EEA,US"
    assert to_line(read_line("region!=CN,US")) == "region!=CN,US"
