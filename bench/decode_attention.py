"""Attention of one new token per sequence over its cached keys and values: reads what is there, and no more.

Each program takes one sequence, one KV head with its group of query heads, and one part of the context; a second kernel
joins the parts. So a long context of a single sequence keeps the whole GPU busy, and lengths are read on the GPU, which
lets the kernels be captured in a CUDA graph. Needs Triton.
"""

# Kernels have no Python types, and many arguments.
# ruff: noqa: ANN001, ANN202, N803, PLR0917
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

BLOCK_TOKENS = 64
GROUP_ROWS_MIN = 16
"""The smallest side of a product on tensor cores: a group of fewer heads is padded."""
PROGRAMS = 512
SPLITS_MIN, SPLITS_MAX = 4, 32


@triton.jit
def _attend_parts(
    q, k, v, slots, positions, parts, weights, scale,
    stride_slot, stride_token, stride_head,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, DIM: tl.constexpr,
    SPLITS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    sequence, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    length = tl.load(positions + sequence).to(tl.int32) + 1
    part = tl.cdiv(tl.cdiv(length, SPLITS), BLOCK) * BLOCK
    start = split * part
    end = tl.minimum(length, start + part)
    rows, dims = tl.arange(0, ROWS), tl.arange(0, DIM)
    is_row = rows < GROUP
    heads = head * GROUP + rows
    query_at = (sequence * KV_HEADS * GROUP + heads[:, None]) * DIM + dims[None, :]
    query = tl.load(q + query_at, mask=is_row[:, None], other=0.0)
    base = tl.load(slots + sequence) * stride_slot + head * stride_head
    best = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    result = tl.zeros([ROWS, DIM], tl.float32)
    for first in range(start, end, BLOCK):
        tokens = first + tl.arange(0, BLOCK)
        is_token = tokens < end
        at = base + tokens[:, None] * stride_token + dims[None, :]
        keys = tl.load(k + at, mask=is_token[:, None], other=0.0)
        scores = tl.dot(query, tl.trans(keys)) * scale
        scores = tl.where(is_token[None, :], scores, float("-inf"))
        higher = tl.maximum(best, tl.max(scores, 1))
        share = tl.exp(scores - higher[:, None])
        shrink = tl.exp(best - higher)
        values = tl.load(v + at, mask=is_token[:, None], other=0.0)
        result = result * shrink[:, None] + tl.dot(share.to(values.dtype), values)
        total = total * shrink + tl.sum(share, 1)
        best = higher
    row_at = (sequence * KV_HEADS * GROUP + heads) * SPLITS + split
    tl.store(parts + row_at[:, None] * DIM + dims[None, :], result, mask=is_row[:, None])
    tl.store(weights + row_at * 2, best, mask=is_row)
    tl.store(weights + row_at * 2 + 1, total, mask=is_row)


@triton.jit
def _join_parts(parts, weights, out, DIM: tl.constexpr, SPLITS: tl.constexpr):
    row = tl.program_id(0)
    splits, dims = tl.arange(0, SPLITS), tl.arange(0, DIM)
    best = tl.load(weights + (row * SPLITS + splits) * 2)
    total = tl.load(weights + (row * SPLITS + splits) * 2 + 1)
    share = tl.exp(best - tl.max(best, 0))
    summed = tl.load(parts + (row * SPLITS + splits)[:, None] * DIM + dims[None, :])
    joined = tl.sum(summed * share[:, None], 0) / tl.sum(total * share, 0)
    tl.store(out + row * DIM + dims, joined.to(out.dtype.element_ty))


def decode_attention(q: Any, k: Any, v: Any, slots: Any, positions: Any) -> Any:
    """`q` is [sequences, heads, dim], contiguous; `k` and `v` are [slots, tokens, KV heads, dim].

    Each sequence attends to the tokens of its slot up to and including its position.
    """
    sequences, heads, dim = q.shape
    kv_heads = k.shape[2]
    splits = max(SPLITS_MIN, min(SPLITS_MAX, triton.next_power_of_2(PROGRAMS // (sequences * kv_heads))))
    parts = torch.empty((sequences, heads, splits, dim), dtype=torch.float32, device=q.device)
    weights = torch.empty((sequences, heads, splits, 2), dtype=torch.float32, device=q.device)
    out = torch.empty_like(q)
    group = heads // kv_heads
    _attend_parts[(sequences, kv_heads, splits)](
        *(q, k, v, slots, positions, parts, weights, dim**-0.5),
        *(k.stride(0), k.stride(1), k.stride(2)),
        KV_HEADS=kv_heads,
        GROUP=group,
        ROWS=max(GROUP_ROWS_MIN, triton.next_power_of_2(group)),
        DIM=dim,
        SPLITS=splits,
        BLOCK=BLOCK_TOKENS,
    )
    _join_parts[(sequences * heads,)](parts, weights, out, DIM=dim, SPLITS=splits)
    return out
