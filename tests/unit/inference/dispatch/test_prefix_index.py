"""What a gateway remembers of prompts: hashes that mean nothing elsewhere, bounded, and for a while."""

from __future__ import annotations

import gc

from sparewatt.inference.dispatch.prefix_index import PREFIX_AGE_S_MAX, PrefixIndex
from sparewatt.inference.prompt import (
    BLOCK_TOKENS,
    PREFIX_BLOCK_BYTES,
    PREFIX_BLOCKS_PER_PROMPT_MAX,
    PREFIX_HOLDERS_MAX,
    prefix_hashes,
)
from tests.unit.inference.nodes import MODEL, NOW_S, node_id

SECRET, ROOMY = bytes(32), 1_000_000
TEXT = b'{"role":"user","content":"' + b"the quick brown fox " * 1000 + b'"}'


def chain(*messages: bytes, model: str = MODEL, account: str = "acc_1", secret: bytes = SECRET) -> tuple[int, ...]:
    return prefix_hashes(messages, model=model, account=account, secret=secret)


def note(
    memory: PrefixIndex, number: int, blocks: tuple[int, ...], *, capacity: int = ROOMY, at_s: float = NOW_S
) -> None:
    memory.add(node_id(number), MODEL, blocks, capacity_tokens=capacity, now_s=at_s)


# hashes


def test_prompts_that_begin_alike_share_hashes_up_to_where_they_differ() -> None:
    one, other = chain(TEXT, b"x" * 9000), chain(TEXT, b"y" * 9000)
    shared = len(TEXT) // PREFIX_BLOCK_BYTES
    assert one[:shared] == other[:shared]
    assert not set(one[shared:]) & set(other[shared:])


def test_a_block_is_named_after_all_before_it() -> None:
    tail = b"z" * PREFIX_BLOCK_BYTES
    assert chain(b"a" * PREFIX_BLOCK_BYTES + tail)[1] != chain(b"b" * PREFIX_BLOCK_BYTES + tail)[1]


def test_only_whole_blocks_count() -> None:
    assert chain(b"a" * (PREFIX_BLOCK_BYTES - 1)) == ()
    assert len(chain(b"a" * (2 * PREFIX_BLOCK_BYTES + 1))) == 2


def test_how_messages_are_cut_makes_no_difference_to_cost() -> None:
    assert len(chain(b"a" * (PREFIX_BLOCK_BYTES * 500))) == PREFIX_BLOCKS_PER_PROMPT_MAX
    assert chain(b"a" * 3000, b"a" * 3000) == chain(b"a" * 6000)


def test_another_account_model_or_process_has_other_hashes() -> None:
    mine = set(chain(TEXT))
    for other in (chain(TEXT, account="acc_2"), chain(TEXT, model="m"), chain(TEXT, secret=b"s" * 32)):
        assert not mine & set(other)


def test_an_image_ends_what_can_be_compared() -> None:
    image = b'{"role":"user","content":[{"type":"image_url"}]}' + b"A" * 50_000
    assert chain(TEXT, image, TEXT) == chain(TEXT)
    assert chain(image, TEXT) == ()


def test_no_text_is_stored() -> None:
    memory = PrefixIndex()
    note(memory, 1, chain(TEXT))
    reached, todo = set(), [memory]
    while todo:
        thing = todo.pop()
        if id(thing) not in reached and not isinstance(thing, type):
            reached.add(id(thing))
            assert not isinstance(thing, bytes | bytearray | memoryview)
            assert not isinstance(thing, str) or "quick" not in thing
            todo += gc.get_referents(thing)


# memory


def test_who_read_a_prompt_holds_its_beginning() -> None:
    memory = PrefixIndex()
    note(memory, 1, (10, 11, 12))
    assert memory.tokens_by_node((10, 11, 99), now_s=NOW_S) == {node_id(1): 2 * BLOCK_TOKENS}
    assert memory.tokens_by_node((99, 11), now_s=NOW_S) == {
        node_id(1): 2 * BLOCK_TOKENS
    }  # a name stands for all before it
    assert memory.tokens_by_node((98, 99), now_s=NOW_S) == {}
    assert memory.tokens_by_node((), now_s=NOW_S) == {}


def test_each_node_holds_what_it_read() -> None:
    memory = PrefixIndex()
    note(memory, 1, (10, 11, 12))
    note(memory, 2, (10, 11))
    assert memory.tokens_by_node((10, 11, 12, 13), now_s=NOW_S) == {
        node_id(1): 3 * BLOCK_TOKENS,
        node_id(2): 2 * BLOCK_TOKENS,
    }


def test_a_beginning_that_all_share_hides_nobody() -> None:
    memory = PrefixIndex()
    note(memory, 1, (10, 11, 12))
    for number in range(2, 3 * PREFIX_HOLDERS_MAX):
        note(memory, number, (10, 100 + number))
    held = memory.tokens_by_node((10, 11, 12), now_s=NOW_S)
    assert held[node_id(1)] == 3 * BLOCK_TOKENS
    assert len(held) <= 2 * PREFIX_HOLDERS_MAX


def test_a_node_keeps_no_more_than_it_says_and_loses_ends_first() -> None:
    memory = PrefixIndex()
    note(memory, 1, (10, 11, 12), capacity=2 * BLOCK_TOKENS)
    assert memory.tokens_by_node((10, 11, 12), now_s=NOW_S) == {node_id(1): 2 * BLOCK_TOKENS}
    note(memory, 1, (20, 21), capacity=2 * BLOCK_TOKENS)
    assert memory.tokens_by_node((10, 11, 12), now_s=NOW_S) == {}
    assert len(memory) == 2


def test_a_node_that_keeps_nothing_is_not_remembered() -> None:
    memory = PrefixIndex()
    note(memory, 1, (10, 11), capacity=0)
    assert len(memory) == 0


def test_what_is_old_does_not_count_and_use_renews_it() -> None:
    memory = PrefixIndex()
    note(memory, 1, (10,))
    later_s = NOW_S + PREFIX_AGE_S_MAX + 1
    assert memory.tokens_by_node((10,), now_s=later_s) == {}
    note(memory, 1, (10,), at_s=later_s)
    assert memory.tokens_by_node((10,), now_s=later_s) == {node_id(1): BLOCK_TOKENS}


def test_a_node_that_left_is_forgotten_and_others_are_not() -> None:
    memory = PrefixIndex()
    note(memory, 1, (10, 11))
    note(memory, 2, (10,))
    memory.forget(node_id(1))
    memory.forget(node_id(77))
    assert memory.tokens_by_node((10, 11), now_s=NOW_S) == {node_id(2): BLOCK_TOKENS}
    assert len(memory) == 1


def test_memory_is_bounded_whatever_nodes_claim() -> None:
    memory = PrefixIndex(blocks_max=100)
    for number in range(1, 50):
        note(memory, number, tuple(range(number * 1000, number * 1000 + 20)), capacity=1 << 40)
        assert len(memory) <= 100
        assert len(memory._readers) <= 100
        assert sum(map(len, memory._cached.values())) == len(memory)
    assert memory.tokens_by_node((49_000,), now_s=NOW_S)
    assert not memory.tokens_by_node((1000,), now_s=NOW_S)
