"""What an owner may state, and what the answer to nonsense is."""

from __future__ import annotations

import pytest

from sparewatt.core.errors import StartupError
from sparewatt.node.facts.owner_facts import FACT_NAMES, OwnerFacts, parse_owner_facts


def test_facts_are_parsed_by_name() -> None:
    assert parse_owner_facts("slots=64 kv-bytes-per-token=131_072,prefix-cache-tokens=0") == OwnerFacts(
        slots=64, kv_bytes_per_token=131072, prefix_cache_tokens=0
    )


@pytest.mark.parametrize("name", FACT_NAMES)
def test_every_fact_can_be_stated_with_a_hyphen(name: str) -> None:
    facts = parse_owner_facts(f"{name}=7")
    assert getattr(facts, name.replace("-", "_")) == 7


def test_the_last_of_two_counts() -> None:
    assert parse_owner_facts("slots=2 slots=3") == OwnerFacts(slots=3)


@pytest.mark.parametrize("text", [None, "auto", "  auto ", ""])
def test_without_a_fact_nothing_is_stated(text: str | None) -> None:
    assert parse_owner_facts(text) == OwnerFacts()


@pytest.mark.parametrize("text", ["slot=4", "=4", "64", "kv tokens=4", "__class__=1", "auto slots=3"])
def test_an_unknown_fact_is_refused_with_the_names_of_all(text: str) -> None:
    with pytest.raises(StartupError, match="kv-bytes-per-token"):
        parse_owner_facts(text)


@pytest.mark.parametrize(
    "text",
    [
        "slots=0",
        "slots=-1",
        "slots=4097",
        "slots=",
        "slots=many",
        "slots=1e3",
        "slots=٣",
        "weights-bytes=99999999999999999999999",
        f"kv-tokens={2**40 + 1}",
        "context=0",
    ],
)
def test_a_number_out_of_range_is_refused_with_the_range(text: str) -> None:
    with pytest.raises(StartupError, match=r"must be a whole number from [\d,]+ to [\d,]+"):
        parse_owner_facts(text)
