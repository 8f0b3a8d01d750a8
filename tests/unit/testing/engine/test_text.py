"""The pure text: what is promised about continuations holds for every prompt and every cut."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sparewatt.testing import (
    ASSISTANT_MARKER,
    answer_tokens,
    count_tokens,
    expected_text,
    render_chat,
    tokenize,
)
from sparewatt.testing.engine.text import (
    NATURAL_TOKENS_MAX,
    NATURAL_TOKENS_MIN,
    VOCABULARY,
    Continuation,
    continuation,
    natural_length,
)

untimed = settings(deadline=None)
prompts = st.text(max_size=60)
seeds = st.none() | st.integers()


@st.composite
def worded_prompts(draw: st.DrawFn) -> str:
    """Prompts made of the engine's own words, which look most like answers."""
    return "".join(draw(st.lists(st.sampled_from(VOCABULARY), max_size=8)))


@untimed
@given(prompt=prompts | worded_prompts(), cut=st.integers(min_value=0), seed=seeds)
def test_a_raw_completion_cut_anywhere_continues_with_the_rest(prompt: str, cut: int, seed: int | None) -> None:
    answer = expected_text(prompt, seed=seed)
    at = cut % (len(answer) + 1)
    assert expected_text(prompt + answer[:at], seed=seed) == answer[at:]


@untimed
@given(content=prompts | worded_prompts(), cut=st.integers(min_value=0), choice=st.integers(0, 3))
def test_a_prefilled_chat_cut_anywhere_continues_with_the_rest(content: str, cut: int, choice: int) -> None:
    user = {"role": "user", "content": content}
    answer = expected_text(render_chat([user]), choice=choice)
    at = cut % (len(answer) + 1)
    prefilled = render_chat([user, {"role": "assistant", "content": answer[:at]}])
    assert prefilled == render_chat([user]) + answer[:at]
    assert expected_text(prefilled, choice=choice) == answer[at:]


def test_every_cut_of_one_answer_continues_with_the_rest() -> None:
    prompt = render_chat([{"role": "user", "content": "Say something with “quotes”."}])
    answer = expected_text(prompt)
    for at in range(len(answer) + 1):
        assert expected_text(prompt + answer[:at]) == answer[at:]


@untimed
@given(content=prompts, n_tokens=st.integers(0, NATURAL_TOKENS_MAX))
def test_a_split_finds_the_template_and_the_number_of_emitted_tokens(content: str, n_tokens: int) -> None:
    prompt = render_chat([{"role": "user", "content": content}])
    emitted = "".join(answer_tokens(prompt, 0, n_tokens))
    assert continuation(prompt + emitted) == Continuation(prompt, n_tokens, 0)


def test_a_token_that_was_cut_inside_does_not_count_as_emitted() -> None:
    prompt = render_chat([{"role": "user", "content": "x"}])
    tokens = answer_tokens(prompt, 0, 10)
    at = next(i for i, token in enumerate(tokens) if len(token) > 2)
    assert continuation(prompt + "".join(tokens[:at]) + tokens[at][:2]) == Continuation(prompt, at, 2)


def test_a_foreign_prefill_becomes_part_of_the_question() -> None:
    prompt = render_chat([{"role": "user", "content": "x"}, {"role": "assistant", "content": "No such words"}])
    assert continuation(prompt) == Continuation(prompt, 0, 0)


@untimed
@given(prompt=prompts, start=st.integers(0, 500), count=st.integers(0, 100), seed=seeds)
def test_tokens_depend_on_nothing_but_prompt_and_position(
    prompt: str, start: int, count: int, seed: int | None
) -> None:
    whole = answer_tokens(prompt, 0, start + count, seed=seed)
    assert answer_tokens(prompt, start, count, seed=seed) == whole[start:]


@untimed
@given(prompt=prompts, seed=seeds)
def test_the_natural_length_is_in_bounds_and_is_what_is_generated(prompt: str, seed: int | None) -> None:
    chat_prompt = prompt + ASSISTANT_MARKER
    length = natural_length(chat_prompt, seed=seed)
    assert NATURAL_TOKENS_MIN <= length <= NATURAL_TOKENS_MAX
    assert count_tokens(expected_text(chat_prompt, seed=seed)) == length


@untimed
@given(prompt=prompts, count=st.integers(0, 300))
def test_the_tokenizer_splits_an_answer_as_it_was_generated(prompt: str, count: int) -> None:
    tokens = answer_tokens(prompt, 0, count)
    assert tokenize("".join(tokens)) == tokens


@untimed
@given(text=st.text())
def test_the_tokenizer_loses_nothing_and_counts_what_it_splits(text: str) -> None:
    assert "".join(tokenize(text)) == text
    assert count_tokens(text) == len(tokenize(text))


def test_seed_and_choice_change_the_answer() -> None:
    answers = {expected_text("p", seed=seed, choice=choice) for seed in (None, 1, 2) for choice in (0, 1)}
    assert len(answers) == 6


def test_answers_hold_what_json_and_utf8_must_escape() -> None:
    text = "".join(answer_tokens("p", 0, 5000))
    assert '"' in text
    assert "\\" in text
    assert "🙂" in text
    assert ASSISTANT_MARKER not in text


def test_a_chat_renders_every_role_and_ends_with_the_marker() -> None:
    messages: list[dict[str, object]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "What is "}, {"type": "image_url", "image_url": {}}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "7"},
    ]
    assert render_chat(messages) == (
        "<|system|>Be brief.\n<|user|>What is [image_url]\n<|assistant|>f({})\n<|tool|>7\n<|assistant|>"
    )


@untimed
@given(label=st.from_regex(r"\w{1,40}", fullmatch=True), cut=st.integers(min_value=0))
def test_every_token_of_a_labelled_chat_has_its_label_and_it_continues_at_any_cut(label: str, cut: int) -> None:
    prompt = render_chat([{"role": "user", "content": f"[label {label}] and a question"}])
    answer = expected_text(prompt, max_tokens=20)
    assert answer == "".join(f" {label}_{i}" for i in range(20))
    assert count_tokens(answer) == 20
    at = cut % (len(answer) + 1)
    assert expected_text(prompt + answer[:at], max_tokens=40).startswith(answer[at:])


def test_a_chat_may_wish_for_the_length_of_its_answer() -> None:
    wishes = [render_chat([{"role": "user", "content": f"[answer {count}] hello"}]) for count in (0, 3, 300)]

    assert [len(tokenize(expected_text(wish))) for wish in wishes] == [0, 3, 300]
    assert natural_length("[answer 3] hello") >= NATURAL_TOKENS_MIN  # a raw prompt may be half an answer
