"""A Llama with random weights in plain PyTorch, with a KV cache of slots, for `torch_server`.

It computes what a real one of its shape computes, so its tokens take as long; they mean nothing. On a GPU the decoding
steps are CUDA graphs, one for each size of batch, with a Triton kernel for attention; an iteration that also reads
prompts is not captured. On a processor everything is plain PyTorch, for trying the rest out.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from bench.iteration_scheduler import CHUNK_TOKENS, Iteration, PromptPiece
from bench.iteration_scheduler import Sequence as Request
from torch.nn.attention.bias import causal_lower_right

ROPE_BASE = 500_000.0
NORM_EPS = 1e-5
WEIGHT_STD = 0.02
BATCHES = (1, 2, 4, 8, 16, 32, 64)
PREFILL_LENGTHS = (128, 512, 1024, 2048, 4096, 8192)
SHORT_CONTEXT, LONG_CONTEXT = 1200, 8192
LONG_BATCHES = (1, 16, 64)
TIMED_RUNS, TIMED_STEPS = 5, 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaShape:
    name: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    hidden: int
    vocabulary: int
    has_own_head: bool = True
    """Whether the output has weights of its own, or those of the embedding."""
    context: int = 9216
    """Tokens of a slot, unless told otherwise."""

    @property
    def head_dim(self) -> int:
        return self.width // self.heads

    @property
    def kv_bytes_per_token(self) -> int:
        """At 16 bits."""
        return 2 * 2 * self.layers * self.kv_heads * self.head_dim

    @property
    def parameters(self) -> int:
        attention = self.width * self.head_dim * 2 * (self.heads + self.kv_heads)
        layer = attention + 3 * self.width * self.hidden + 2 * self.width
        return self.layers * layer + self.width + (1 + self.has_own_head) * self.vocabulary * self.width


SHAPES = {
    "8b": LlamaShape(
        name="random-llama-3.1-8b",
        layers=32,
        width=4096,
        heads=32,
        kv_heads=8,
        hidden=14_336,
        vocabulary=128_256,
    ),
    "1b": LlamaShape(
        name="random-llama-3.2-1b",
        layers=16,
        width=2048,
        heads=32,
        kv_heads=8,
        hidden=8192,
        vocabulary=128_256,
        has_own_head=False,
    ),
    "tiny": LlamaShape(
        name="random-tiny",
        layers=2,
        width=128,
        heads=4,
        kv_heads=2,
        hidden=256,
        vocabulary=4096,
        context=4096,
    ),
}


class Launched:
    """An iteration on its way: its tokens come to the host as soon as it is done."""

    def __init__(self, iteration: Iteration, tokens: Any) -> None:
        self.iteration = iteration
        self._event = None
        self._host = tokens
        if tokens.is_cuda:
            self._host = torch.empty(tokens.shape, dtype=tokens.dtype, pin_memory=True)
            self._host.copy_(tokens, non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record()

    def tokens(self) -> list[int]:
        """Waits. In the order of `Iteration.writers`."""
        if self._event is not None:
            self._event.synchronize()
        found: list[int] = self._host.tolist()
        return found


class RandomLlama:
    """`slots` sequences of up to `context` tokens. Not for two threads at once."""

    def __init__(self, shape: LlamaShape, *, slots: int, context: int, device: str | None = None) -> None:
        self.shape, self.slots, self.context = shape, slots, context
        self.device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self.is_cuda = self.device == "cuda"
        self._dtype = torch.bfloat16 if self.is_cuda else torch.float32
        self.attention = "plain PyTorch"
        self._decode_attention: Callable[..., Any] = _plain_decode_attention
        self._graphs: dict[int, tuple[Any, Any, Any]] = {}
        if not self.is_cuda:
            torch.set_num_threads(1)  # more would only wait for each other
        torch.backends.cuda.enable_cudnn_sdp(False)  # it would plan anew for every length of a prompt
        torch.manual_seed(7)
        with torch.inference_mode():
            self._make_weights()
            self._make_cache()

    def _random(self, *size: int, std: float = WEIGHT_STD) -> Any:
        return torch.empty(size, dtype=self._dtype, device=self.device).normal_(0.0, std)

    def _make_weights(self) -> None:
        shape = self.shape
        heads_in, heads_out = (shape.heads + 2 * shape.kv_heads) * shape.head_dim, shape.heads * shape.head_dim
        self._norms = torch.ones((shape.width,), dtype=self._dtype, device=self.device)
        self._embedding = self._random(shape.vocabulary, shape.width)
        self._head = self._random(shape.vocabulary, shape.width) if shape.has_own_head else self._embedding
        self._layers = [
            (
                self._random(heads_in, shape.width),
                self._random(shape.width, heads_out),
                self._random(2 * shape.hidden, shape.width),
                self._random(shape.width, shape.hidden),
            )
            for _ in range(shape.layers)
        ]

    def _make_cache(self) -> None:
        """One slot more than there are: what pads a batch writes there. Filled with noise, which takes a GPU as long
        as real contexts; zeros would take less."""
        shape = self.shape
        size = (self.slots + 1, self.context, shape.kv_heads, shape.head_dim)
        self._cache = [(self._random(*size, std=1.0), self._random(*size, std=1.0)) for _ in range(shape.layers)]
        half = torch.arange(0, shape.head_dim, 2, device=self.device, dtype=torch.float32) / shape.head_dim
        angles = torch.outer(torch.arange(self.context, device=self.device, dtype=torch.float32), ROPE_BASE**-half)
        self._cos = torch.cat((angles.cos(), angles.cos()), dim=1).to(self._dtype)
        self._sin = torch.cat((-angles.sin(), angles.sin()), dim=1).to(self._dtype)
        self._last = torch.zeros((self.slots + 1,), dtype=torch.int64, device=self.device)

    def prepare(self) -> str | None:
        """Compile and capture. Returns why decoding is not captured; then it is slower, but works."""
        if not self.is_cuda:
            return "there is no GPU"
        with torch.inference_mode():
            try:
                from bench.decode_attention import decode_attention  # noqa: PLC0415 (needs Triton)

                self._check_attention(decode_attention)
                self._decode_attention, self.attention = decode_attention, "Triton"
                pool = torch.cuda.graph_pool_handle()
                for batch in sorted({min(each, self.slots) for each in BATCHES}, reverse=True):
                    self._graphs[batch] = self._capture(batch, pool)
            except (ImportError, RuntimeError, AssertionError, ValueError, TypeError) as error:
                torch.cuda.synchronize()
                self._graphs.clear()
                self._decode_attention, self.attention = _plain_decode_attention, "plain PyTorch"
                return f"{type(error).__name__}: {error}"
        return None

    def _check_attention(self, attend: Callable[..., Any]) -> None:
        """Against plain PyTorch in 32 bits, on fresh noise. Raises AssertionError."""
        keys, values = self._cache[0]
        slots = torch.arange(min(4, self.slots), device=self.device)
        positions = (slots * 997 + 5) % self.context
        q = self._random(len(slots), self.shape.heads, self.shape.head_dim, std=1.0)
        found = attend(q, keys, values, slots, positions).float()
        wanted = _plain_decode_attention(q.float(), keys, values, slots, positions)
        off = float((found - wanted).norm() / wanted.norm())
        if not off < 0.02:
            raise AssertionError(f"the attention kernel is off by {off:.3f}")

    def _capture(self, batch: int, pool: Any) -> tuple[Any, Any, Any]:
        inputs = torch.stack([torch.arange(batch), torch.full((batch,), 64)]).to(self.device)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self._decode(inputs[0], inputs[1])
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            tokens = self._decode(inputs[0], inputs[1])
        return graph, inputs, tokens

    def launch(self, iteration: Iteration) -> Launched:
        """Returns at once on a GPU; iterations are done in the order of the calls."""
        with torch.inference_mode():
            if iteration.pieces:
                return Launched(iteration, self._mixed(iteration))
            rows = [(sequence.slot, position) for sequence, position in iteration.decoding]
            return Launched(iteration, self._decode_rows(rows))

    def _decode_rows(self, rows: Sequence[tuple[int, int]]) -> Any:
        batch = next((size for size in sorted(self._graphs) if size >= len(rows)), None)
        if batch is None:
            slots, positions = self._upload([slot for slot, _ in rows], [position for _, position in rows])
            return self._decode(slots, positions)
        graph, inputs, tokens = self._graphs[batch]
        padded = [*rows, *[(self.slots, 0)] * (batch - len(rows))]
        inputs.copy_(self._host([[slot for slot, _ in padded], [at for _, at in padded]]), non_blocking=True)
        graph.replay()
        return tokens[: len(rows)]

    def _host(self, values: list[Any]) -> Any:
        return torch.tensor(values, dtype=torch.int64, pin_memory=self.is_cuda)

    def _upload(self, *lists: list[int]) -> Any:
        whole = self._host([value for each in lists for value in each]).to(self.device, non_blocking=True)
        return whole.split([len(each) for each in lists])

    def _decode(self, slots: Any, positions: Any) -> Any:
        hidden = self._run(self._last[slots], slots, positions, decoding=len(slots), pieces=())
        return self._next_tokens(hidden, slots)

    def _mixed(self, iteration: Iteration) -> Any:
        """As in the decoding step, with the prompts' tokens behind."""
        pieces, decoding = iteration.pieces, len(iteration.decoding)
        decoding_slots = [sequence.slot for sequence, _ in iteration.decoding]
        positions = [position for _, position in iteration.decoding]
        slots, prompts, writers = list(decoding_slots), list[int](), list(range(decoding))
        for sequence, start, count in pieces:
            prompts += sequence.prompt[start : start + count]
            slots += [sequence.slot] * count
            positions += range(start, start + count)
            if start + count == len(sequence.prompt):
                writers.append(len(slots) - 1)
        prompt, slot, position, out = self._upload(prompts, slots, positions, writers)
        tokens = torch.cat((self._last[slot[:decoding]], prompt))
        hidden = self._run(tokens, slot, position, decoding=decoding, pieces=pieces)
        return self._next_tokens(hidden[out], slot[out]) if writers else out

    def _next_tokens(self, hidden: Any, slots: Any) -> Any:
        logits = F.linear(self._norm(hidden), self._head)
        tokens = logits.argmax(dim=1)
        self._last[slots] = tokens
        return tokens

    def _norm(self, hidden: Any) -> Any:
        return F.rms_norm(hidden, (self.shape.width,), self._norms, NORM_EPS)

    def _run(self, tokens: Any, slots: Any, positions: Any, *, decoding: int, pieces: Sequence[PromptPiece]) -> Any:
        shape = self.shape
        rotated_heads, dim = shape.heads + shape.kv_heads, shape.head_dim
        cos, sin = self._cos[positions][:, None], self._sin[positions][:, None]
        prompts = [(piece, causal_lower_right(piece.tokens, piece.start + piece.tokens)) for piece in pieces]
        hidden = self._embedding[tokens]
        for (into, out, gate_up, down), (keys, values) in zip(self._layers, self._cache, strict=True):
            projected = F.linear(self._norm(hidden), into).view(len(tokens), -1, dim)
            heads = projected[:, :rotated_heads]
            heads = torch.addcmul(heads * cos, heads.roll(dim // 2, dims=-1), sin)
            query = heads[:, : shape.heads].contiguous()
            keys[slots, positions] = heads[:, shape.heads :]
            values[slots, positions] = projected[:, rotated_heads:]
            attended = self._attend(query, keys, values, slots, positions, decoding=decoding, prompts=prompts)
            hidden = hidden + F.linear(attended.reshape(len(tokens), -1), out)
            gate, up = F.linear(self._norm(hidden), gate_up).chunk(2, dim=-1)
            hidden = hidden + F.linear(F.silu(gate) * up, down)
        return hidden

    def _attend(
        self,
        query: Any,
        keys: Any,
        values: Any,
        slots: Any,
        positions: Any,
        *,
        decoding: int,
        prompts: Sequence[tuple[PromptPiece, Any]],
    ) -> Any:
        found = []
        if decoding:
            found.append(self._decode_attention(query[:decoding], keys, values, slots[:decoding], positions[:decoding]))
        row = decoding
        for (sequence, start, tokens), mask in prompts:
            attended = F.scaled_dot_product_attention(
                query[row : row + tokens].transpose(0, 1)[None],
                keys[sequence.slot, : start + tokens].transpose(0, 1)[None],
                values[sequence.slot, : start + tokens].transpose(0, 1)[None],
                attn_mask=mask,
                enable_gqa=True,
            )
            found.append(attended[0].transpose(0, 1))
            row += tokens
        return found[0] if len(found) == 1 else torch.cat(found)

    # direct timings

    def timings(self) -> dict[str, Any]:
        """How long it takes without any server around it: seconds per prompt by its length, and per step by the batch
        and the context of each sequence. Medians."""
        batches = sorted({min(batch, self.slots) for batch in BATCHES})
        steps = [(batch, SHORT_CONTEXT) for batch in batches]
        steps += [(batch, LONG_CONTEXT) for batch in LONG_BATCHES if batch <= self.slots]
        return {
            "prefill": [
                (length, self._median(partial(self._read, length)))
                for length in PREFILL_LENGTHS
                if length < self.context
            ],
            "decode": [
                (batch, context, self._median(partial(self._write, batch, context)) / TIMED_STEPS)
                for batch, context in steps
                if context + TIMED_STEPS <= self.context
            ],
        }

    def _median(self, work: Callable[[], None]) -> float:
        work()
        return statistics.median(self._seconds(work) for _ in range(TIMED_RUNS))

    def _seconds(self, work: Callable[[], None]) -> float:
        began_s = time.perf_counter()
        work()
        return time.perf_counter() - began_s

    def _read(self, length: int) -> None:
        """A prompt of random tokens, in chunks as the server reads it, until its first token is on the host."""
        prompt = torch.randint(self.shape.vocabulary, (length,)).tolist()
        request = Request(prompt, 1, slot=0)
        for start in range(0, length, CHUNK_TOKENS):
            piece = PromptPiece(request, start, min(CHUNK_TOKENS, length - start))
            launched = self.launch(Iteration((), (piece,)))
        launched.tokens()

    def _write(self, batch: int, context: int) -> None:
        requests = [Request([0] * context, 1, slot=slot) for slot in range(batch)]
        for step in range(TIMED_STEPS):
            launched = self.launch(Iteration(tuple((each, context + step) for each in requests), ()))
        launched.tokens()


def _plain_decode_attention(q: Any, k: Any, v: Any, slots: Any, positions: Any) -> Any:
    """As `decode_attention`, in plain PyTorch: copies the contexts, which is slow."""
    length = int(positions.max()) + 1
    keys, values = (cache[slots, :length].transpose(1, 2).to(q.dtype) for cache in (k, v))
    mask = torch.arange(length, device=q.device)[None, :] <= positions[:, None]
    attended = F.scaled_dot_product_attention(q[:, :, None], keys, values, mask[:, None, None], enable_gqa=True)
    return attended[:, :, 0]
