"""Architectures of known model families, from the `config.json` that each publisher ships with the weights. Pure data.

One line per size: billions of parameters as in the model's name, all parameters in billions, those active for a token,
layers, and the values (keys and values together) that one layer caches per token: 2 * KV heads * head dimension, or the
latent vector of multi-head latent attention.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

WINDOW_CONTEXT_TOKENS = 4096
"""The context at which layers with a sliding window are counted: there they hold their window, the others all of it."""


@dataclass(frozen=True, slots=True)
class Architecture:
    size_b: float
    """As in a name, in billions."""
    parameters_b: float
    active_b: float
    layers: float
    """Whose cache grows with the context; layers with a sliding window count by their share."""
    values_per_layer: int
    bits: float = 16.0
    """Per weight, as published."""

    @property
    def parameters(self) -> int:
        return round(self.parameters_b * 1e9)

    @property
    def active_parameters(self) -> int:
        return round(self.active_b * 1e9)

    def kv_bytes(self, value_bits: float) -> int:
        """Of one token."""
        return round(self.layers * self.values_per_layer * value_bits / 8)


@dataclass(frozen=True, slots=True)
class ModelFamily:
    pattern: str
    """A regular expression for normalised names: lower case, words joined by hyphens."""
    sizes: tuple[Architecture, ...]


def _gqa(size_b: float, parameters_b: float, layers: int, kv_heads: int, head_dim: int) -> Architecture:
    return Architecture(size_b, parameters_b, parameters_b, layers, 2 * kv_heads * head_dim)


def _moe(
    size_b: float, parameters_b: float, active_b: float, layers: int, values_per_layer: int, *, bits: float = 16.0
) -> Architecture:
    return Architecture(size_b, parameters_b, active_b, layers, values_per_layer, bits)


def _windowed(base: Architecture, *, full_layers: int, window: int) -> Architecture:
    """Of its layers only some see the whole context."""
    share = min(1.0, window / WINDOW_CONTEXT_TOKENS)
    return replace(base, layers=full_layers + (base.layers - full_layers) * share)


_LLAMA_3_8B, _LLAMA_3_70B = _gqa(8, 8.03, 32, 8, 128), _gqa(70, 70.55, 80, 8, 128)
_QWEN_2_5 = (
    _gqa(0.5, 0.494, 24, 2, 64),
    _gqa(1.5, 1.544, 28, 2, 128),
    _gqa(3, 3.086, 36, 2, 128),
    _gqa(7, 7.616, 28, 4, 128),
    _gqa(14, 14.77, 48, 8, 128),
    _gqa(32, 32.76, 64, 8, 128),
    _gqa(72, 72.71, 80, 8, 128),
)
_QWEN_3_8B = _gqa(8, 8.19, 36, 8, 128)
_MLA = 512 + 64
"""DeepSeek's latent vector and its rotary part."""

FAMILIES = (
    # DeepSeek: its distillates are other families' models
    ModelFamily(r"distill-llama", (_LLAMA_3_8B, _LLAMA_3_70B)),
    ModelFamily(r"deepseek-r1.*qwen-?3", (_QWEN_3_8B,)),
    ModelFamily(r"distill-qwen", (_gqa(1.5, 1.777, 28, 2, 128), *_QWEN_2_5[3:6])),
    ModelFamily(r"deepseek-(coder-)?v2-lite|deepseek-(coder-)?v2-16b", (_moe(16, 15.71, 2.4, 27, _MLA),)),
    ModelFamily(r"deepseek-(coder-)?v2", (_moe(236, 235.7, 21.4, 60, _MLA),)),
    ModelFamily(r"deepseek-(v3|r1)", (_moe(671, 671.0, 37.5, 61, _MLA, bits=8.2),)),
    ModelFamily(r"deepseek-r1", (_gqa(1.5, 1.777, 28, 2, 128), *_QWEN_2_5[3:6], _QWEN_3_8B, _LLAMA_3_70B)),
    ModelFamily(
        r"deepseek-coder", (_gqa(1.3, 1.346, 24, 16, 128), _gqa(6.7, 6.74, 32, 32, 128), _gqa(33, 33.34, 62, 8, 128))
    ),
    # Llama
    ModelFamily(
        r"llama-?3\.2",
        (
            _gqa(1, 1.236, 16, 8, 64),
            _gqa(3, 3.213, 28, 8, 128),
            _gqa(11, 10.67, 40, 8, 128),
            _gqa(90, 88.59, 100, 8, 128),
        ),
    ),
    ModelFamily(r"llama-?3(\.[13])?(?![.\d])", (_LLAMA_3_8B, _LLAMA_3_70B, _gqa(405, 405.9, 126, 8, 128))),
    ModelFamily(r"llama-?4-scout", (_windowed(_moe(17, 108.6, 17.2, 48, 2048), full_layers=12, window=8192),)),
    ModelFamily(r"llama-?4-maverick", (_windowed(_moe(17, 400.7, 17.2, 48, 2048), full_layers=12, window=8192),)),
    ModelFamily(r"tinyllama", (_gqa(1.1, 1.1, 22, 4, 64),)),
    ModelFamily(
        r"llama-?2|codellama|vicuna",
        (
            _gqa(7, 6.74, 32, 32, 128),
            _gqa(13, 13.02, 40, 40, 128),
            _gqa(34, 33.74, 48, 8, 128),
            _gqa(70, 68.98, 80, 8, 128),
        ),
    ),
    # Qwen
    ModelFamily(r"qwen-?3-next", (_moe(80, 81.3, 3.9, 12, 2 * 2 * 256),)),
    ModelFamily(
        r"qwen-?3(?![.\d])",
        (
            _gqa(0.6, 0.596, 28, 8, 128),
            _gqa(1.7, 1.72, 28, 8, 128),
            _gqa(4, 4.02, 36, 8, 128),
            _QWEN_3_8B,
            _gqa(14, 14.77, 40, 8, 128),
            _gqa(32, 32.76, 64, 8, 128),
            _moe(30, 30.53, 3.35, 48, 2 * 4 * 128),
            _moe(235, 235.1, 22.2, 94, 2 * 4 * 128),
            _moe(480, 480.2, 35.5, 62, 2 * 8 * 128),
        ),
    ),
    ModelFamily(r"qwen-?2(\.5)?(?![.\d])|qwq", (*_QWEN_2_5, _moe(57, 57.4, 14.2, 28, 2 * 4 * 128))),
    # Mistral
    ModelFamily(r"mixtral", (_moe(8 * 7, 46.7, 12.9, 32, 2 * 8 * 128), _moe(8 * 22, 140.6, 39.2, 56, 2 * 8 * 128))),
    ModelFamily(r"mistral-nemo", (_gqa(12, 12.25, 40, 8, 128),)),
    ModelFamily(r"mistral-large", (_gqa(123, 122.6, 88, 8, 128),)),
    ModelFamily(r"ministral-?8b|ministral", (_gqa(8, 8.02, 36, 8, 128),)),
    ModelFamily(r"codestral", (_gqa(22, 22.25, 56, 8, 128),)),
    ModelFamily(
        r"mistral|devstral|magistral|mathstral|zephyr",
        (_gqa(7, 7.248, 32, 8, 128), _gqa(22, 22.25, 56, 8, 128), _gqa(24, 23.57, 40, 8, 128)),
    ),
    # Gemma: most layers see a window only
    ModelFamily(
        r"gemma-?3(?![n.\d])",
        (
            _windowed(_gqa(0.27, 0.268, 18, 1, 256), full_layers=3, window=512),
            _windowed(_gqa(1, 1.0, 26, 1, 256), full_layers=4, window=512),
            _windowed(_gqa(4, 4.3, 34, 4, 256), full_layers=5, window=1024),
            _windowed(_gqa(12, 12.19, 48, 8, 256), full_layers=8, window=1024),
            _windowed(_gqa(27, 27.43, 62, 16, 128), full_layers=10, window=1024),
        ),
    ),
    ModelFamily(
        r"gemma-?2(?![.\d])(?!b)", (_gqa(2, 2.614, 26, 4, 256), _gqa(9, 9.24, 42, 8, 256), _gqa(27, 27.23, 46, 16, 128))
    ),
    ModelFamily(r"(code)?gemma-(1\.1-)?[27]b", (_gqa(2, 2.506, 18, 1, 256), _gqa(7, 8.54, 28, 16, 256))),
    # Phi
    ModelFamily(r"phi-?4-mini|phi-?4-reasoning-mini", (_gqa(3.8, 3.84, 32, 8, 128),)),
    ModelFamily(r"phi-?4-multimodal", (_gqa(5.6, 5.57, 32, 8, 128),)),
    ModelFamily(r"phi-?4", (_gqa(14, 14.66, 40, 10, 128),)),
    ModelFamily(r"phi-?3\.5-moe", (_moe(42, 41.9, 6.6, 32, 2 * 8 * 128),)),
    ModelFamily(r"phi-?3(\.5)?-(mini|vision)|phi-?3-3\.8b", (_gqa(3.8, 3.82, 32, 32, 96),)),
    ModelFamily(r"phi-?3-small", (_gqa(7, 7.39, 32, 8, 128),)),
    ModelFamily(r"phi-?3-(medium|14b)", (_gqa(14, 13.96, 40, 10, 128),)),
    ModelFamily(r"phi-?2", (_gqa(2.7, 2.78, 32, 32, 80),)),
    # others
    ModelFamily(r"smollm-?3", (_gqa(3, 3.08, 36, 4, 128),)),
    ModelFamily(
        r"smollm", (_gqa(0.135, 0.1345, 30, 3, 64), _gqa(0.36, 0.3618, 32, 5, 64), _gqa(1.7, 1.711, 24, 32, 64))
    ),
    ModelFamily(
        r"gpt-oss",
        (
            _windowed(_moe(20, 20.9, 3.6, 24, 2 * 8 * 64, bits=5.3), full_layers=12, window=128),
            _windowed(_moe(120, 116.8, 5.1, 36, 2 * 8 * 64, bits=4.5), full_layers=18, window=128),
        ),
    ),
    ModelFamily(r"glm-?4\.5-air", (_moe(106, 106.9, 12.0, 46, 2 * 8 * 128),)),
    ModelFamily(r"glm-?4\.[56]", (_moe(355, 352.8, 32.0, 92, 2 * 8 * 128),)),
    ModelFamily(r"glm-?4|glm-z1", (_gqa(9, 9.4, 40, 2, 128), _gqa(32, 32.57, 61, 2, 128))),
    ModelFamily(r"kimi-k2", (_moe(1000, 1026.0, 32.9, 61, _MLA, bits=8.2),)),
    ModelFamily(r"granite-?3", (_gqa(2, 2.53, 40, 8, 64), _gqa(8, 8.17, 40, 8, 128))),
    ModelFamily(r"(?<![a-z])yi-", (_gqa(6, 6.06, 32, 4, 128), _gqa(9, 8.83, 48, 4, 128), _gqa(34, 34.39, 60, 8, 128))),
    ModelFamily(r"command-r-?plus", (_gqa(104, 103.8, 64, 8, 128),)),
    ModelFamily(r"olmo-?2", (_gqa(7, 7.3, 32, 32, 128), _gqa(13, 13.72, 40, 40, 128), _gqa(32, 32.23, 64, 8, 128))),
    ModelFamily(r"falcon-?3", (_gqa(7, 7.46, 28, 4, 256), _gqa(10, 10.31, 40, 4, 256))),
    ModelFamily(r"internlm-?2", (_gqa(7, 7.74, 32, 8, 128), _gqa(20, 19.86, 48, 8, 128))),
)
"""The first whose pattern and one of whose sizes fit a name counts."""
