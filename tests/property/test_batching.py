"""Whatever arrives and is cancelled, an engine that batches loses no token, no block and no request."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparewatt.sim.servers.facts import BLOCK_TOKENS
from sparewatt.testing.engine.batching import BatchedSequence, BatchLimits, BatchScheduler, StepCurve

CURVE = StepCurve(step_s=0.01, step_per_job_s=0.001, prefill_fixed_s=0.003, prefill_token_s=0.0005)
ENGINES = st.builds(
    BatchLimits,
    kind=st.sampled_from(["slots", "batching"]),
    seqs_max=st.integers(1, 6),
    chunk_tokens=st.integers(1, 300),
    context_length=st.just(256),
    kv_tokens=st.integers(256, 900),
    separate_prefill=st.booleans(),
)
REQUESTS = st.lists(
    st.tuples(st.floats(0, 0.3), st.integers(1, 156), st.integers(0, 160), st.integers(1, 100), st.booleans()),
    min_size=1,
    max_size=20,
)


def check(engine: BatchScheduler) -> None:
    limits = engine.limits
    assert len(engine.running) <= limits.seqs_max
    assert engine.blocks_free + sum(each.blocks for each in engine.running) == limits.kv_tokens // BLOCK_TOKENS
    assert all(each.blocks == 0 and not each.is_running for each in engine.waiting)
    assert all(each.read <= each.tokens for each in engine.running)
    assert len({each.slot for each in engine.running if each.slot >= 0}) == (
        len(engine.running) if limits.kind == "slots" else 0
    )


@given(ENGINES, REQUESTS)
def test_every_request_ends_and_everything_is_free_again(
    limits: BatchLimits, requests: list[tuple[float, int, int, int, bool]]
) -> None:
    engine = BatchScheduler(limits, CURVE)
    now_s, kept, dropped = 0.0, list[BatchedSequence](), list[BatchedSequence]()
    for wait_s, prompt, cached, answer, is_kept in requests:
        now_s += wait_s
        engine.advance(now_s)
        check(engine)
        if dropped and not dropped[-1].is_ended:
            engine.cancel(dropped[-1])
        sequence = engine.submit(now_s, prompt_tokens=prompt, cached_tokens=cached, new_tokens=answer)
        (kept if is_kept else dropped).append(sequence)
        check(engine)
    tokens = engine.advance(1e6)
    check(engine)

    assert engine.due_s is None
    assert not engine.running
    assert not engine.waiting
    assert all(each.written == each.new_tokens for each in kept)
    assert [at_s for at_s, _ in tokens] == sorted(at_s for at_s, _ in tokens)
    assert engine.load().totals.requests >= len(kept)
