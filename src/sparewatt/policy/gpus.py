"""Names and classes of GPUs as data, the classes by measured inference speed.

GPUs of one class are worth the same to a job. A GPU that is not in the table has no class, and satisfies no condition
on it. Words for the form factor and the memory (SXM, PCIe, 80GB) are not part of a name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from sparewatt.core.limits import WORDS_REMEMBERED_MAX

GPU_CLASSES = ("rtx8", "rtx12", "rtx16", "rtx24", "rtx32", "l40s", "a100", "h100", "h200", "b200", "b300")
"""Weakest first."""

GPU_CLASS_WEIGHT: Mapping[str, int] = {
    "": 50_000,
    "rtx8": 150_000,
    "rtx12": 250_000,
    "rtx16": 500_000,
    "rtx24": 1_000_000,
    "rtx32": 1_500_000,
    "l40s": 2_000_000,
    "a100": 4_000_000,
    "h100": 12_000_000,
    "h200": 15_000_000,
    "b200": 20_000_000,
    "b300": 24_000_000,
}
"""What one GPU of a class counts in rewards, in millionths of one with 24 GB; "" is a machine without a known GPU."""

_NAMES = {
    "rtx8": "rtx-2060 rtx-2070 rtx-2080 rtx-3050 rtx-3060-ti rtx-3070 rtx-3070-ti rtx-4060 rtx-5060 gtx-1070 gtx-1080",
    "rtx12": "rtx-2080-ti rtx-3060 rtx-3080 rtx-3080-ti rtx-4070 rtx-4070-super rtx-5070 gtx-1080-ti p100 titan-v",
    "rtx16": "rtx-4060-ti rtx-4070-ti rtx-4070-ti-super rtx-4080 rtx-4080-super rtx-4090-laptop rtx-5060-ti rtx-5070-ti"
    " rtx-5080 t4 v100 a2 a4000 rtx-a4000 rtx-2000-ada rtx-4000-ada a770 rx-7800-xt rx-6800-xt rx-6900-xt rx-9070-xt",
    "rtx24": "rtx-3090 rtx-3090-ti rtx-4090 rtx-4090-d rtx-5090-laptop a10 a10g a30 l4 rtx-a5000 a5000 rtx-4500-ada"
    " titan-rtx rx-7900-xtx p40",
    "rtx32": "rtx-5090 rtx-5090-d rtx-5000-ada rtx-pro-4500 w7800",
    "l40s": "l40s l40 a40 rtx-a6000 a6000 rtx-6000-ada w7900 rtx-pro-5000 rtx-pro-6000",
    "a100": "a100 a100x a800 mi210 mi250 mi250x",
    "h100": "h100 h800 h20 gaudi3",
    "h200": "h200 gh200 mi300a mi300x mi325x",
    "b200": "b100 b200 gb200 mi350x mi355x",
    "b300": "b300 gb300",
}
if tuple(GPU_CLASS_WEIGHT) != ("", *GPU_CLASSES):
    raise RuntimeError("a class of GPUs has no weight, or the weights are not in the order of the classes")
_CLASS_OF = {name: gpu_class for gpu_class, names in _NAMES.items() for name in names.split()}
_VENDORS = re.compile(r"nvidia|geforce|quadro|tesla|amd|radeon|instinct|intel|arc|graphics|gpu|card|tensor|core")
_FORMS = re.compile(r"sxm\d?|pcie|nvl|oam|sff|hbm\d?e?|ada|generation|blackwell|edition|server|workstation|\d+gb")
_SIZE = re.compile(r"\d+gb")
_GLUED = re.compile(r"\b(rtx|gtx|rx)(?=[\da])")
_GLUED_END = re.compile(r"(?<=\d)(ti)?(super)?\b")
"""`3090ti`, `4070tisuper`, as other networks' files write them."""
_WORD = re.compile(r"[a-z0-9]+")
_ADA = frozenset({"rtx-2000", "rtx-4000", "rtx-4500", "rtx-5000", "rtx-6000"})
"""Names that mean another GPU if the generation is left out."""


@lru_cache(maxsize=WORDS_REMEMBERED_MAX)
def gpu_name(text: str) -> str:
    """A GPU's name as in the vocabulary: `NVIDIA GeForce RTX 4090` and `rtx_4090` are `rtx-4090`."""
    apart = _GLUED_END.sub(lambda end: f" {end[1] or ''} {end[2] or ''}", _GLUED.sub(r"\1 ", text.lower()))
    words = [word for word in _WORD.findall(apart) if not _VENDORS.fullmatch(word)]
    name = "-".join(word for word in words if not _FORMS.fullmatch(word))
    return f"{name}-ada" if name in _ADA and "ada" in words else name


def has_memory_size(text: str) -> bool:
    """Whether a name includes the size of the memory, which has a field of its own."""
    return any(_SIZE.fullmatch(word) for word in _WORD.findall(text.lower()))


def gpu_class_of(text: str) -> str | None:
    return _CLASS_OF.get(gpu_name(text))
