"""What the data sheets of GPUs say: memory bandwidth, and dense compute at 16 bits. Pure data.

A node without a measurement reports these, and a gateway takes them as a ceiling, since no program beats its card.
Names are those of the vocabulary (`gpus`). Where form factors differ, the name's own words decide, else the fastest
counts.
"""

from __future__ import annotations

import re
from functools import lru_cache

from sparewatt.core.limits import WORDS_REMEMBERED_MAX
from sparewatt.policy.gpus import gpu_name

_FIGURES = """
gtx-1070 256 6.5, gtx-1080 320 8.9, gtx-1080-ti 484 11.3, p40 346 11.8, p100 732 21.2, titan-v 653 110
t4 320 65, v100 900 125, v100s 1134 130, titan-rtx 672 130
rtx-2060 336 52, rtx-2060-super 448 57, rtx-2070 448 60, rtx-2070-super 448 73, rtx-2080 448 85
rtx-2080-super 496 89, rtx-2080-ti 616 114
rtx-3050 224 36, rtx-3060 360 51, rtx-3060-ti 448 65, rtx-3070 448 81, rtx-3070-ti 608 87, rtx-3080 912 122
rtx-3080-ti 912 136, rtx-3090 936 142, rtx-3090-ti 1008 160
rtx-4060 272 60, rtx-4060-ti 288 88, rtx-4070 504 117, rtx-4070-super 504 142, rtx-4070-ti 504 160
rtx-4070-ti-super 672 176, rtx-4080 717 195, rtx-4080-super 736 209, rtx-4090 1008 330, rtx-4090-d 1008 294
rtx-4090-laptop 576 132
rtx-5060 448 77, rtx-5060-ti 448 95, rtx-5070 672 124, rtx-5070-ti 896 176, rtx-5080 960 225, rtx-5090 1792 419
rtx-5090-d 1792 419, rtx-5090-laptop 896 127
a2 200 18, a10 600 125, a10g 600 125, a30 933 165, a40 696 150, l4 300 121, l40 864 181, l40s 864 362
a4000 448 77, rtx-a4000 448 77, a5000 768 111, rtx-a5000 768 111, a6000 768 155, rtx-a6000 768 155
rtx-2000-ada 224 48, rtx-4000-ada 360 107, rtx-4500-ada 432 159, rtx-5000-ada 576 261, rtx-6000-ada 960 364
rtx-pro-4500 896 220, rtx-pro-5000 1344 295, rtx-pro-6000 1792 504
a100 2039 312, a100x 2039 312, a800 2039 312, h100 3938 989, h800 3938 989, h20 4000 148, h200 4800 989
gh200 4900 990, b100 8000 1750, b200 8000 2250, gb200 8000 2500, b300 8000 2500, gb300 8000 2500
mi210 1638 181, mi250 3277 362, mi250x 3277 383, mi300a 5300 980, mi300x 5300 1307, mi325x 6000 1307
mi350x 8000 2300, mi355x 8000 2500, gaudi3 3700 1835
rx-6800-xt 512 41, rx-6900-xt 512 46, rx-7800-xt 624 75, rx-7900-xtx 960 123, rx-9070-xt 645 195, w7800 576 91
w7900 864 123, a770 560 138
apple-m1 68 2.6, apple-m1-pro 205 5.3, apple-m1-max 410 10.6, apple-m1-ultra 820 21, apple-m2 102 3.6
apple-m2-pro 205 6.8, apple-m2-max 410 13.6, apple-m2-ultra 820 27, apple-m3 102 4.1, apple-m3-pro 154 7.4
apple-m3-max 410 16.4, apple-m3-ultra 819 33, apple-m4 120 4.3, apple-m4-pro 273 9.3, apple-m4-max 546 18.4
"""
"""GB/s and TFLOPS of one card, dense (without sparsity)."""
_FORMS = {
    ("a100", "40gb"): 1555.0,
    ("a100", "pcie"): 1935.0,
    ("h100", "pcie"): 2039.0,
    ("h100", "hbm3"): 3352.0,
    ("h100", "sxm5"): 3352.0,
    ("h100", "nvl"): 3938.0,
}
"""Another bandwidth for a name with this word; the first that fits counts."""
_CORES = re.compile(r"-\d+-cores\Z")


def _parsed() -> dict[str, tuple[float, float]]:
    rows = (row.split() for row in re.split(r"[,\n]", _FIGURES) if row.strip())
    return {name: (float(gb_s), float(tflops)) for name, gb_s, tflops in rows}


_OF_CARD = _parsed()


def memory_bandwidth_of(gpu: str) -> float | None:
    """Bytes per second of one card's memory, by any spelling of its name; None for a card that is not in the table."""
    figures = _figures_of(gpu)
    if figures is None:
        return None
    name, words = gpu_name(gpu), set(re.findall(r"[a-z0-9]+", gpu.lower()))
    by_form = (gb_s for (card, word), gb_s in _FORMS.items() if card == name and word in words)
    return next(by_form, figures[0]) * 1e9


def fp16_tflops_of(gpu: str) -> float | None:
    """Dense compute of one card at 16 bits; None for a card that is not in the table."""
    figures = _figures_of(gpu)
    return figures[1] if figures is not None else None


@lru_cache(maxsize=WORDS_REMEMBERED_MAX)
def _figures_of(gpu: str) -> tuple[float, float] | None:
    return _OF_CARD.get(_CORES.sub("", gpu_name(gpu)))
