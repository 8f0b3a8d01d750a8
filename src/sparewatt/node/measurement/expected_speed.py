"""What a model usually reaches on hardware like this: for a price while the machine is too busy to be measured.

A step reads the weights once from memory and computes two operations per parameter and answer; prompts are bound by
computing. Rough, and the same at every join: a price must not depend on what else ran just then.
"""

from __future__ import annotations

import msgspec

from sparewatt.node.backends.backend import BackendModel
from sparewatt.node.hardware.gpu import Hardware
from sparewatt.protocol.link.node_report import PriceBasis, Speed
from sparewatt.protocol.link.reference_load import reference_basis

CPU_BYTES_S = 20e9
"""Two channels of memory, as read by one program."""
GPU_BYTES_S_PER_TFLOPS = 12e9
"""Of claimed 32-bit TFLOPS: what consumer cards of the last generations have."""
MEMORY_SHARE = 0.6
COMPUTE_SHARE = 0.25
BYTES_PER_PARAMETER = 0.6
"""At four bits and a half, where a server reports the weights only."""
PREFILL_FIXED_S = 0.02


def expected_basis(
    model: BackendModel,
    hardware: Hardware,
    *,
    slots: int,
    copy_bytes_s: float | None,
    limit_tps: float | None = None,
) -> PriceBasis | None:
    """None where neither the size of the model nor the machine's speed is known.

    `limit_tps`: the owner's limit, of each answer.
    """
    parameters = model.parameters or model.weights_bytes / BYTES_PER_PARAMETER
    weights_bytes = model.weights_bytes or parameters * BYTES_PER_PARAMETER
    if not parameters or hardware.tflops <= 0:
        return None
    memory_bytes_s = copy_bytes_s or (hardware.tflops * GPU_BYTES_S_PER_TFLOPS if hardware.gpu_count else CPU_BYTES_S)
    token_s = 2 * parameters / (COMPUTE_SHARE * hardware.tflops * 1e12)
    speed = Speed(
        prefill_tps=_bounded(1 / token_s, 1e-3, 1e7),
        decode_tps=_bounded(1 / (weights_bytes / (MEMORY_SHARE * memory_bytes_s) + token_s), 1e-3, 1e7),
        ttft_s=PREFILL_FIXED_S,
        step_per_job_s=_bounded(token_s, 0.0, 3600.0),
    )
    basis = reference_basis(speed, slots=slots)
    completion_tps = basis.completion_tps if limit_tps is None else min(basis.completion_tps, basis.jobs * limit_tps)
    return msgspec.structs.replace(basis, completion_tps=completion_tps, source="expected")


def _bounded(value: float, low: float, high: float) -> float:
    return max(low, min(high, value))
