"""Laws of policies: levels only narrow, and what is written reads back the same."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparewatt.core.errors import BadRequest, KeyPolicyViolation
from sparewatt.policy import parser
from sparewatt.policy.check import FACT_OF, NodeFacts, compile_policy
from sparewatt.policy.composition import PolicyLevel, contradictions, intersect, narrow, normalized
from sparewatt.policy.fields import FIELDS
from sparewatt.policy.formatter import explain_relaxation, to_line, to_object
from sparewatt.policy.grammar import POLICY_TEXT_CHARS_MAX
from sparewatt.policy.model import ANY, Policy
from sparewatt.policy.openrouter import TRANSLATIONS
from sparewatt.policy.relaxation import check_node, funnel, relaxations
from tests.unit.policy.examples import FIELD_VALUES, few_fields, policies
from tests.unit.policy.examples import facts as some_facts


def first_mismatch(policy: Policy, facts: NodeFacts) -> str | None:
    return compile_policy(policy).first_mismatch(facts)


@given(policies, policies, policies)
def test_levels_compose_in_any_grouping(a: Policy, b: Policy, c: Policy) -> None:
    assert intersect(intersect(a, b), c) == intersect(a, intersect(b, c)) == intersect(a, b, c)


@given(policies)
def test_a_level_said_twice_is_said_once_and_saying_nothing_changes_nothing(a: Policy) -> None:
    assert intersect(a, a) == intersect(ANY, a) == intersect(a, ANY) == a


@given(few_fields, few_fields, some_facts)
def test_what_the_whole_allows_every_level_allows(a: Policy, b: Policy, facts: NodeFacts) -> None:
    if first_mismatch(intersect(a, b), facts) is None:
        assert first_mismatch(a, facts) is None
        assert first_mismatch(b, facts) is None


@pytest.mark.parametrize("name", sorted(set(FACT_OF) - {"attested_by", "only"}))
@settings(max_examples=20)
@given(data=st.data())
def test_what_every_level_allows_the_whole_allows(name: str, data: st.DataObject) -> None:
    a, b = (Policy(**{name: data.draw(FIELD_VALUES[name])}) for _ in range(2))
    facts = data.draw(some_facts)
    if first_mismatch(a, facts) is None and first_mismatch(b, facts) is None:
        assert first_mismatch(intersect(a, b), facts) is None


@pytest.mark.parametrize("name", sorted(FIELDS))
@settings(max_examples=20)
@given(data=st.data())
def test_a_request_that_is_not_refused_gets_exactly_what_it_asked_for(name: str, data: st.DataObject) -> None:
    key, request = (Policy(**{name: data.draw(FIELD_VALUES[name])}) for _ in range(2))
    facts = data.draw(some_facts)
    try:
        effective = narrow([PolicyLevel("key", key)], request)
    except KeyPolicyViolation as error:
        assert error.param == name  # noqa: PT017 - either outcome is right
        return
    assert intersect(key, effective) == effective
    if first_mismatch(effective, facts) is None:
        assert first_mismatch(key, facts) is None


@given(policies, policies)
def test_what_was_narrowed_can_be_asked_for_again(key: Policy, request: Policy) -> None:
    effective = normalized(intersect(key, request))
    assert narrow([PolicyLevel("key", key)], effective) == effective


@given(policies)
def test_json_reads_back_the_same(policy: Policy) -> None:
    policy = normalized(policy)
    if contradictions(policy):
        return
    assert parser.read_object(json.loads(json.dumps(to_object(policy)))) == (policy, ())


@given(policies)
def test_a_line_reads_back_the_same_and_fits_a_header(policy: Policy) -> None:
    policy = normalized(policy)
    line = to_line(policy)
    assert line.isascii()
    assert line.isprintable()
    if not contradictions(policy) and len(line) <= POLICY_TEXT_CHARS_MAX:
        assert parser.read_line(line) == policy
        assert parser.read_query([("q", line)]) == policy


@given(policies)
def test_equal_policies_have_one_hash(policy: Policy) -> None:
    assert hash(policy) == hash(intersect(policy, policy))


@given(st.text(max_size=200))
def test_any_line_is_read_or_refused(text: str) -> None:
    try:
        parser.read_line(text)
    except BadRequest as error:
        assert error.message  # noqa: PT017 - either outcome is right


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=6,
)
field_names = st.sampled_from([*FIELDS, *TRANSLATIONS])


@given(st.dictionaries(field_names | st.text(max_size=10), json_values, max_size=4))
def test_any_object_is_read_or_refused(value: object) -> None:
    try:
        policy = parser.read_object(value).policy
    except BadRequest as error:
        assert error.param is not None  # noqa: PT017 - either outcome is right
        return
    assert parser.read_object(to_object(policy)).policy == policy


@given(few_fields, st.lists(st.lists(some_facts, min_size=1, max_size=2), max_size=5))
def test_the_funnel_counts_every_node_once(policy: Policy, nodes: list[list[NodeFacts]]) -> None:
    steps = funnel(policy, nodes)
    left = sum(check_node(policy, models) is None for models in nodes)
    assert sum(step.dropped for step in steps) == len(nodes) - left
    assert not steps or steps[-1].left == left


@given(few_fields, st.lists(st.lists(some_facts, min_size=1, max_size=2), max_size=5))
def test_a_relaxation_adds_what_it_says(policy: Policy, nodes: list[list[NodeFacts]]) -> None:
    before = sum(check_node(policy, models) is None for models in nodes)
    for relaxed in relaxations(policy, nodes):
        looser = Policy(
            **{name: getattr(policy, name) for name in FIELDS} | dict.fromkeys(relaxed.fields, relaxed.relaxed)
        )
        assert sum(check_node(looser, models) is None for models in nodes) == before + relaxed.adds
        assert relaxed.adds > 0
        assert explain_relaxation(relaxed)


@given(few_fields, some_facts)
def test_the_first_mismatch_is_one_of_all(policy: Policy, facts: NodeFacts) -> None:
    compiled = compile_policy(policy)
    assert (compiled.first_mismatch(facts) or "") in (compiled.mismatched_fields(facts) or ("",))


def test_every_field_has_values_to_try() -> None:
    assert set(FIELD_VALUES) == set(FIELDS) == set(Policy.__dataclass_fields__)
