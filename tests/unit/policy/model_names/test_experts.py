from __future__ import annotations

import pytest

from sparewatt.policy.model_names.experts import UNNAMED_SHARE, read_share


@pytest.mark.parametrize("name", ["llama-3.1-8b", "qwen2.5-7b", "smollm2-135m", "deepseek-r1-distill-llama-8b", ""])
def test_a_dense_model_reads_all_of_its_weights(name: str) -> None:
    assert read_share(name) == 1.0


@pytest.mark.parametrize(
    ("name", "share"), [("qwen3-30b-a3b", 0.1), ("Qwen/Qwen3-235B-A22B", 22 / 235), ("x-1b-a9b", 1.0)]
)
def test_a_mixture_that_says_so_reads_what_it_says(name: str, share: float) -> None:
    assert read_share(name) == pytest.approx(share)


@pytest.mark.parametrize(
    "name", ["gpt-oss-20b", "deepseek-v3", "deepseek-r1", "mixtral-8x7b", "llama-4-scout", "a-0b-a1b-moe"]
)
def test_a_mixture_that_does_not_is_given_the_benefit_of_the_doubt(name: str) -> None:
    assert read_share(name) == UNNAMED_SHARE
