"""The built-in model server: llama.cpp's HTTP server from the xllamacpp wheel, in its own process.

Run as `python -m sparewatt.node.backends.llama_server …`. One thread: its spin barrier starves when cores are shared.
Prompts are read in short batches: between two of them it sees that a client left, and goes on with other answers.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import threading
from pathlib import Path

from sparewatt.core.errors import StartupError
from sparewatt.machine.lifeline import die_with_parent

GET_LLAMA = "pip install xllamacpp"
BATCH_S = 0.25
"""How long a batch of a prompt may take: a prompt whose client left is given up after two of them at most."""
CPU_BYTES_S = 1.4e10
"""Bytes of weights times prompt tokens per second of one slow core (SmolLM2 135M, Q4_1: 98 MB at 140 tokens/s)."""
BATCH_TOKENS_MIN, BATCH_TOKENS_MAX = 8, 512
"""Below 8, a core reads the weights more often than it computes with them; 512 is llama.cpp's own physical batch."""
NEEDS_LLAMA = f"Serving a file needs llama.cpp, which is not installed here. Install it and join again: {GET_LLAMA}"


def has_llama() -> bool:
    """Whether this machine can serve a file by itself."""
    return importlib.util.find_spec("xllamacpp") is not None


def batch_tokens(weights_bytes: int, *, slots: int, has_gpu: bool) -> int:
    """Tokens of a prompt that are read at once (`n_batch`): a power of two, and room for a token of every slot."""
    if has_gpu:
        return BATCH_TOKENS_MAX
    fitting = int(BATCH_S * CPU_BYTES_S / max(1, weights_bytes))
    return max(BATCH_TOKENS_MIN, slots, min(BATCH_TOKENS_MAX, 1 << max(0, fitting.bit_length() - 1)))


def serve(
    model: Path, *, alias: str, slots: int, context: int, port: int, threads: int = 1, batch: int | None = None
) -> None:
    """Load the model, serve it on loopback, return on SIGTERM or SIGINT. `batch`: instead of `batch_tokens`."""
    try:
        import xllamacpp  # noqa: PLC0415 (optional: only nodes that serve a file themselves need it)
    except ImportError:
        raise StartupError(NEEDS_LLAMA) from None
    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    params.model_alias = {alias}
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_parallel = slots
    params.n_ctx = context * slots  # a fixed share per slot: a long answer cannot starve the others
    params.cache_ram_mib = 0  # no cache of old prompts in the owner's memory
    kinds = xllamacpp.ggml_backend_dev_type
    gpus = (kinds.GGML_BACKEND_DEVICE_TYPE_GPU, kinds.GGML_BACKEND_DEVICE_TYPE_IGPU)
    has_gpu = any(device["type"] in gpus for device in xllamacpp.get_device_info())
    fitting = batch_tokens(model.stat().st_size, slots=slots, has_gpu=has_gpu)
    params.n_batch = params.n_ubatch = fitting if batch is None else max(batch, slots)
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.endpoint_slots = True
    params.endpoint_props = True
    params.endpoint_metrics = True
    params.ui = False
    params.verbosity = 1
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    server = xllamacpp.Server(params)  # returns when the model is loaded; lives until it is collected
    _silence_output()
    stop.wait()
    del server


def _silence_output() -> None:
    """llama.cpp would log parts of requests, for example a grammar that does not parse."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)


def main() -> None:
    parser = argparse.ArgumentParser(prog="sparewatt-llama-server")
    parser.add_argument("model", type=Path)
    parser.add_argument("--alias", required=True)
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int)
    given = parser.parse_args()
    die_with_parent()
    try:
        serve(
            given.model,
            alias=given.alias,
            slots=given.slots,
            context=given.context,
            port=given.port,
            threads=given.threads,
            batch=given.batch,
        )
    except (StartupError, RuntimeError, ValueError) as error:
        raise SystemExit(f"llama.cpp cannot serve {given.model}: {error}") from None


if __name__ == "__main__":
    main()
