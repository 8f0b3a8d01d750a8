"""Nobody is paid much more than others for like text, and honest servers are paid what they count."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.core.ids import AccountId, NodeId
from sparewatt.inference.metering import token_rates
from sparewatt.inference.metering.token_rates import (
    CAUGHT_SHARE,
    EVIDENCE_ANSWERS_MIN,
    NODES_PER_OWNER_MAX,
    OWNERS_MAX,
    OWNERS_PER_MODEL_MAX,
    PRIOR_ALLOWANCE_TOKENS_MAX,
    PRIORS,
    Claimant,
    Expectation,
    ModelRates,
    OwnerRates,
    Side,
    TokenRates,
    most_prompt_tokens,
)
from sparewatt.inference.text_units import CompletionUnits, PromptUnits, units_of

MODEL = "m"
WORDS = ("the", "cat", "of", "and", "to", "is", "garden", "small", "intelligence", "running", "house", "architecture")
CHINESE = "人工智能是计算机科学的一个分支它试图了解智能的实质"


NODE = NodeId("0x1")


def by(owner: str, node: NodeId = NODE) -> Claimant:
    return Claimant(AccountId(owner), node)


def a_text(rng: random.Random) -> str:
    kind = rng.randrange(3)
    if kind == 0:
        return " ".join(rng.choice(WORDS) for _ in range(rng.randint(4, 60))) + "."
    if kind == 1:
        return "".join(rng.choice(CHINESE) for _ in range(rng.randint(4, 60)))
    return "\n".join(f"    {rng.choice(WORDS)}_{rng.choice(WORDS)}({rng.randint(0, 999)});" for _ in range(5))


def true_count(text: str) -> int:
    """A tokenizer that takes whole words, a token and a half for a Chinese character, and each sign by itself."""
    units = units_of(text)
    words = units.english_words + units.code_words + units.words
    return 1 + words + units.cjk * 3 // 2 + units.digits + units.punctuation * 3 // 4


def serve(rates: TokenRates, owner: str, count: int, factor: float = 1.0, *, seed: int = 0) -> tuple[float, int]:
    """Paid over true, and how many answers were marked."""
    rng = random.Random(f"{owner} {seed}")  # noqa: S311 (repeatable)
    true = paid = marked = 0
    for _ in range(count):
        text = a_text(rng)
        tokens = true_count(text)
        found = rates.pay(MODEL, by(owner), CompletionUnits(units_of(text)), round(tokens * factor), is_whole=True)
        true, paid, marked = true + tokens, paid + found.tokens, marked + found.is_marked
    return paid / true, marked


def learned(owners: int = 3, answers: int = 200) -> TokenRates:
    rates = TokenRates()
    for number in range(owners):
        serve(rates, f"acc_{number}", answers)
    return rates


def test_honest_owners_are_paid_what_they_count() -> None:
    rates = TokenRates()
    for turn in range(20):
        for owner in ("acc_a", "acc_b", "acc_c", "acc_d"):
            ratio, marked = serve(rates, owner, 20, seed=turn)
            assert ratio == pytest.approx(1.0, abs=0.02)
            assert marked == 0


@pytest.mark.parametrize("factor", [1.05, 1.2, 1.5, 2.0, 5.0, 100.0])
def test_a_liar_is_paid_at_most_a_tenth_more_than_others(factor: float) -> None:
    ratio, marked = serve(learned(), "acc_liar", 400, factor)
    assert ratio <= 1.1
    assert factor < 2 or marked > 200


def test_a_liar_among_those_whom_the_rates_are_learned_from_moves_them_little() -> None:
    rates = TokenRates()
    for turn in range(30):
        serve(rates, "acc_liar", 20, 3.0, seed=turn)
        serve(rates, "acc_a", 20, seed=turn)
        serve(rates, "acc_b", 20, seed=turn)
    assert serve(rates, "acc_liar", 100, 3.0)[0] <= 1.1
    assert serve(rates, "acc_a", 100)[0] == pytest.approx(1.0, abs=0.01)


def test_those_who_claim_too_little_do_not_ruin_the_others() -> None:
    rates = TokenRates()
    for owner in ("acc_a", "acc_b", "acc_c"):
        serve(rates, owner, 300, 0.01)
    text = units_of("你好世界" * 20)
    expected = rates.expect(MODEL, CompletionUnits(text))
    assert expected.tokens >= token_rates.FLOOR_OF_PRIOR * float(
        PRIORS[Side.COMPLETION] @ CompletionUnits(text).vector()
    )


def test_with_fewer_than_three_owners_the_prior_holds() -> None:
    rates = learned(owners=2)
    text = CompletionUnits(units_of("Yes."))
    prior = float(PRIORS[Side.COMPLETION] @ text.vector())
    assert rates.expect(MODEL, text).tokens == prior
    assert learned().expect(MODEL, text).tokens != prior
    assert serve(rates, "acc_0", 200)[1] == 0
    ratio, marked = serve(rates, "acc_liar", 200, 10.0)
    assert ratio < 1.5
    assert marked == 200


def test_many_nodes_of_one_owner_have_one_vote() -> None:
    rates = ModelRates(Side.COMPLETION)
    for _ in range(200):
        rates.learn(AccountId("acc_many"), CompletionUnits(units_of("a b c d e")).vector(), 40)
    text = CompletionUnits(units_of("a b c d e")).vector()
    assert rates.expect(text).tokens == float(PRIORS[Side.COMPLETION] @ text)


def test_an_owner_votes_once_it_has_served_enough() -> None:
    owner = OwnerRates(PRIORS[Side.COMPLETION])
    for _ in range(EVIDENCE_ANSWERS_MIN):
        assert not owner.has_vote
        owner.learn(CompletionUnits(units_of("word " * 40)).vector(), 41)
    assert owner.has_vote


def test_what_one_answer_needs_more_comes_from_what_others_needed_less() -> None:
    owner, expected = OwnerRates(PRIORS[Side.COMPLETION]), Expectation(100.0, 0.0, 100.0, 100.0)
    owner.pay(NODE, 60, expected)
    assert owner.allowances == {NODE: 40}
    assert owner.pay(NODE, 140, expected) == (140, False)
    assert owner.pay(NODE, 112, expected) == (100, False)
    assert owner.pay(NODE, 200, expected) == (100 * CAUGHT_SHARE, True)


@given(st.lists(st.tuples(st.integers(0, 5_000), st.floats(0, 1_000)), max_size=40))
def test_in_sum_nobody_is_paid_more_than_what_text_takes(answers: list[tuple[int, float]]) -> None:
    owner, due, paid = OwnerRates(PRIORS[Side.COMPLETION]), 0.0, 0
    for claimed, tokens in answers:
        found = owner.pay(NODE, claimed, Expectation(tokens, 0.05, tokens, tokens))
        assert 0 <= found.tokens <= claimed
        due, paid = due + tokens * 1.05, paid + found.tokens
    assert paid <= due + 1e-6 * len(answers)


def test_a_short_prompt_that_is_claimed_to_be_long_is_cut_and_marked() -> None:
    rates, prompt = TokenRates(), PromptUnits(units_of("Say yes please."), messages=1)
    assert rates.pay(MODEL, by("acc_liar"), prompt, 80, is_whole=True).is_marked
    for owner in ("acc_a", "acc_b", "acc_c"):
        for _ in range(60):
            rates.pay(MODEL, by(owner), prompt, 10, is_whole=True)
    found = rates.pay(MODEL, by("acc_liar"), prompt, 80, is_whole=True)
    assert found.is_marked
    assert found.tokens == pytest.approx(10 * CAUGHT_SHARE, abs=1)
    assert rates.pay(MODEL, by("acc_a"), prompt, 10, is_whole=True) == (10, False)


def test_token_ids_are_counted_and_not_guessed() -> None:
    assert most_prompt_tokens(PromptUnits(messages=1, is_chat=False, ids=1_000)) < 1_150
    assert most_prompt_tokens(PromptUnits(units_of("Hi"), messages=1)) < 70


def test_what_is_remembered_is_bounded() -> None:
    rates, units = TokenRates(), CompletionUnits(units_of("Yes."))
    for number in range(OWNERS_PER_MODEL_MAX + 9):
        rates.pay(MODEL, by(f"acc_{number}"), units, 3, is_whole=False)
    for number in range(OWNERS_MAX + 9):
        rates.pay(f"m{number}", by("acc_a"), units, 3, is_whole=False)
    assert sum(len(known.owners) for known in rates._models.values()) <= OWNERS_MAX
    assert len(rates._models) <= OWNERS_MAX
    assert (MODEL, Side.COMPLETION) not in rates._models


def test_one_liar_after_the_other_does_not_become_the_median() -> None:
    """The cheapest lie of somebody with many accounts: each is caught, and none of them has a vote."""
    rates = TokenRates()
    for owner in ("ann", "ben", "cem"):
        serve(rates, owner, 64)
    for number in range(12):
        ratio, marked = serve(rates, f"liar {number}", 40, factor=6.0)
        assert ratio < 1.1
        assert marked > 30
    ratio, marked = serve(rates, "ann", 64, seed=1)
    assert ratio == pytest.approx(1.0, abs=0.01)
    assert marked == 0


def test_who_was_caught_and_mends_his_ways_votes_again() -> None:
    owner = OwnerRates(PRIORS[Side.COMPLETION])
    expected = Expectation(100.0, 0.08, 100.0, 100.0)
    owner.answers, owner.tokens = 100, 10_000.0
    for _ in range(20):
        owner.pay(NODE, 1000, expected)
    assert not owner.has_vote
    for _ in range(3000):
        owner.pay(NODE, 100, expected)
    assert owner.has_vote


def test_before_anything_is_known_a_lie_about_two_words_gains_nothing() -> None:
    """The prior has room for marks around a text; for a short one that would be most of the pay."""
    rates, text = TokenRates(), CompletionUnits(units_of("Yes."))
    for _ in range(10):
        assert rates.pay(MODEL, by("acc_liar"), text, 4_000, is_whole=True) <= (2, True)


def test_a_node_cannot_spend_what_another_of_its_owner_has_saved() -> None:
    """With three owners, and with one, where the prior holds: an honest node saves, and its neighbour claims a lot."""
    text = CompletionUnits(units_of("Yes, that is so."))
    for rates, tokens in ((learned(), 6), (TokenRates(), 6)):
        for number in range(3):
            for _ in range(200):
                rates.pay(MODEL, by(f"acc_{number}", NodeId("honest")), text, 1, is_whole=False)
        due = rates.expect(MODEL, text)
        found = rates.pay(MODEL, by("acc_0", NodeId("liar")), text, tokens + 10, is_whole=False)
        assert found.tokens <= due.tokens * (1.0 + due.tolerance)


def test_where_the_prior_holds_little_is_saved_for_lies() -> None:
    rates, text = TokenRates(), CompletionUnits(units_of("word " * 60))
    for _ in range(200):
        rates.pay(MODEL, by("acc_a"), text, 60, is_whole=True)
    due = rates.expect(MODEL, text)
    assert due.allowance_max == PRIOR_ALLOWANCE_TOKENS_MAX
    paid = sum(rates.pay(MODEL, by("acc_a"), text, 160, is_whole=True).tokens for _ in range(20))
    assert paid <= 20 * due.tokens * (1.0 + due.tolerance) + PRIOR_ALLOWANCE_TOKENS_MAX


def test_allowances_are_remembered_of_some_nodes_of_an_owner() -> None:
    owner, expected = OwnerRates(PRIORS[Side.COMPLETION]), Expectation(100.0, 0.0, 100.0, 100.0)
    for number in range(NODES_PER_OWNER_MAX + 9):
        owner.pay(NodeId(f"0x{number}"), 60, expected)
    assert len(owner.allowances) == NODES_PER_OWNER_MAX
