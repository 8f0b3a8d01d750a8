"""The table itself: nothing in it is out of the range of real models."""

from __future__ import annotations

import re

import pytest

from sparewatt.node.facts.family_table import FAMILIES, ModelFamily


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.pattern)
class TestFamily:
    def test_its_pattern_is_a_regular_expression_of_normalised_names(self, family: ModelFamily) -> None:
        re.compile(family.pattern)
        assert family.pattern == family.pattern.lower()

    def test_its_sizes_differ(self, family: ModelFamily) -> None:
        sizes = [size.size_b for size in family.sizes]
        assert len(set(sizes)) == len(sizes) > 0

    def test_its_figures_are_those_of_real_models(self, family: ModelFamily) -> None:
        for size in family.sizes:
            assert 0 < size.active_b <= size.parameters_b < 2000
            assert 4 <= size.bits <= 16
            assert 1 < size.layers <= 126
            assert 128 <= size.values_per_layer <= 10_240
            # a mixture of experts is named by one expert or by all of them, any other model by its parameters
            assert size.parameters_b >= 0.8 * size.size_b or size.active_b < size.parameters_b

    def test_a_token_takes_a_small_part_of_the_weights(self, family: ModelFamily) -> None:
        """From a 10,000th of a tiny model to a 50 millionth of a huge one with latent attention."""
        for size in family.sizes:
            share = size.kv_bytes(16) / (2 * size.parameters)
            assert 1e-8 < share < 1.1e-4
