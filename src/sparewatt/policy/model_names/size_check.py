"""Whether a model's reported size can be that of the model that its id names. Pure.

The id and the size are both a node's word. But an owner who lies pays with speed or memory only if the lie is checked
against what costs something: small weights under a large model's name are the cheapest lie, so they are what is caught.
"""

from __future__ import annotations

from sparewatt.policy.model_names.parser import ModelIdentity
from sparewatt.policy.quantization import quantization_of

FACTOR = 1.6
"""How far sizes may differ: a format's files vary by a third, neighbouring sizes of a family by a factor of two."""

_BITS = {
    "int2": 3.0,
    "int3": 3.9,
    "int4": 4.8,
    "int5": 5.7,
    "int6": 6.6,
    "int8": 8.5,
    "fp4": 4.5,
    "mxfp4": 4.6,
    "nvfp4": 4.8,
    "fp6": 6.5,
    "fp8": 8.3,
    "fp16": 16.0,
    "bf16": 16.0,
    "fp32": 32.0,
}
"""Per parameter in a file, scales included. Formats keep some tensors at more bits."""
_BITS_MIN, _BITS_MAX = 1.5, 32.0
"""Where the quantization is unknown."""
_SMALL_BILLIONS = 3.0
_SMALL_BITS_MAX = 16.0
"""A small model is largely its vocabulary, which most formats leave at 8 or 16 bits."""


def contradiction(identity: ModelIdentity, *, weights_bytes: int, quantization: str | None) -> str | None:
    """Why weights of this size are not that model, in words; None if they may be, or if a size is unknown."""
    if not weights_bytes or not identity.billions:
        return None
    word = quantization_of(quantization or identity.quantization)
    low, high = _BITS.get(word, _BITS_MIN), _BITS.get(word, _BITS_MAX)
    if identity.billions < _SMALL_BILLIONS:
        high = max(high, _SMALL_BITS_MAX)
    bits = 8 * weights_bytes / (identity.billions * 1e9)
    if low / FACTOR <= bits <= high * FACTOR:
        return None
    likely = 8 * weights_bytes / ((low if bits < low else high) * 1e9)
    return (
        f"{weights_bytes / 1e9:.3g} GB of weights are about {likely:.2g} billion parameters, "
        f"and {identity.name} has {identity.billions:.3g}"
    )
