"""The numbers by which contracts know countries, GPUs, tiers and attested standards.

A lease's policy on chain is made of masks with bit i for id i, and a provider's claims name ids. They are published and
signed, so an id never changes its meaning: new rows are appended, none is moved or removed. 0 means none or unknown,
and no mask has that bit unless it asks for machines without a GPU. `zones` has the zones.
"""

from __future__ import annotations

import re
from functools import lru_cache

from sparewatt.core.limits import WORDS_REMEMBERED_MAX
from sparewatt.policy.gpus import GPU_CLASSES, gpu_class_of, gpu_name
from sparewatt.policy.regions import COUNTRIES, place_of

NONE = 0
OTHER_GPU = 255
"""A GPU that the table does not have."""

_COUNTRIES = """
AD AE AF AG AI AL AM AO AQ AR AS AT AU AW AX AZ BA BB BD BE BF BG BH BI BJ BL BM BN BO BQ BR BS BT BV BW BY BZ
CA CC CD CF CG CH CI CK CL CM CN CO CR CU CV CW CX CY CZ DE DJ DK DM DO DZ EC EE EG EH ER ES ET FI FJ FK FM FO
FR GA GB GD GE GF GG GH GI GL GM GN GP GQ GR GS GT GU GW GY HK HM HN HR HT HU ID IE IL IM IN IO IQ IR IS IT JE
JM JO JP KE KG KH KI KM KN KP KR KW KY KZ LA LB LC LI LK LR LS LT LU LV LY MA MC MD ME MF MG MH MK ML MM MN MO
MP MQ MR MS MT MU MV MW MX MY MZ NAM NC NE NF NG NI NL NO NP NR NU NZ OM PA PE PF PG PH PK PL PM PN PR PS PT PW
PY QA RE RO RS RU RW SA SB SC SD SE SG SH SI SJ SK SL SM SN SO SR SS ST SV SX SY SZ TC TD TF TG TH TJ TK TL TM
TN TO TR TT TV TW TZ UA UG UM US UY UZ VA VC VE VG VI VN VU WF WS XK YE YT ZA ZM ZW
"""
_GPU_MODELS = """
rtx-2060 rtx-2070 rtx-2080 rtx-3050 rtx-3060-ti rtx-3070 rtx-3070-ti rtx-4060 rtx-5060 gtx-1070 gtx-1080
rtx-2080-ti rtx-3060 rtx-3080 rtx-3080-ti rtx-4070 rtx-4070-super rtx-5070 gtx-1080-ti p100 titan-v rtx-4060-ti
rtx-4070-ti rtx-4070-ti-super rtx-4080 rtx-4080-super rtx-4090-laptop rtx-5060-ti rtx-5070-ti rtx-5080 t4 v100
a2 rtx-a4000 rtx-2000-ada rtx-4000-ada a770 rx-7800-xt rx-6800-xt rx-6900-xt rx-9070-xt rtx-3090 rtx-3090-ti
rtx-4090 rtx-4090-d rtx-5090-laptop a10 a10g a30 l4 rtx-a5000 rtx-4500-ada titan-rtx rx-7900-xtx p40 rtx-5090
rtx-5090-d rtx-5000-ada rtx-pro-4500 w7800 l40s l40 a40 rtx-a6000 rtx-6000-ada w7900 rtx-pro-5000 rtx-pro-6000
a100 a100x a800 mi210 mi250 mi250x h100 h800 h20 gaudi3 h200 gh200 mi300a mi300x mi325x b100 b200 gb200 mi350x
mi355x b300 gb300 v100s rtx-2060-super rtx-2070-super rtx-2080-super apple-m1 apple-m1-pro apple-m1-max
apple-m1-ultra apple-m2 apple-m2-pro apple-m2-max apple-m2-ultra apple-m3 apple-m3-pro apple-m3-max apple-m3-ultra
apple-m4 apple-m4-pro apple-m4-max
"""
_SAME_GPU = {"a4000": "rtx-a4000", "a5000": "rtx-a5000", "a6000": "rtx-a6000"}
"""Short names of cards that have one id."""
_CORES = re.compile(r"-\d+-cores\Z")
CLASS_STEP = 20
"""Contracts compare classes by their number, so a class in between two others needs a free number there."""
OPERATOR = "operator"
"""The auditor of a network that has no other: its operator."""

COUNTRY_ID = {name: number for number, name in enumerate(_COUNTRIES.split(), start=1)}
GPU_MODEL_ID = {name: number for number, name in enumerate(_GPU_MODELS.split(), start=1)}
GPU_CLASS_ID = {
    "rtx8": 20,
    "rtx12": 40,
    "rtx16": 60,
    "rtx24": 80,
    "rtx32": 100,
    "l40s": 120,
    "a100": 140,
    "h100": 160,
    "h200": 180,
    "b200": 200,
    "b300": 220,
}
TIER_ID = {"community": 1, "verified": 2, "datacenter": 3}
COMPLIANCE_ID = {
    ("gdpr", OPERATOR): 1,
    ("hipaa", OPERATOR): 2,
    ("soc2", OPERATOR): 3,
    ("iso27001", OPERATOR): 4,
}
"""By standard and auditor: a standard counts for what the auditor's word is worth."""


def country_id_of(region: str) -> int:
    """By the region that a node reports; 0 if that names no country."""
    place = place_of(region)
    return COUNTRY_ID[place] if place in COUNTRIES else NONE


@lru_cache(maxsize=WORDS_REMEMBERED_MAX)
def gpu_model_id_of(text: str) -> int:
    """By any spelling of a card's name, as a driver or a node reports it.

    0 for a machine without a GPU, OTHER_GPU for one that the table does not have.
    """
    name = _CORES.sub("", gpu_name(text))
    if not text.strip() or name in {"none", "cpu"}:
        return NONE
    return GPU_MODEL_ID.get(_SAME_GPU.get(name, name), OTHER_GPU)


def gpu_class_id_of(text: str) -> int:
    """0 for no GPU, and for one without a class."""
    gpu_class = gpu_class_of(text)
    return NONE if gpu_class is None else GPU_CLASS_ID[gpu_class]


def mask_of(*ids: int) -> int:
    """Bit i for id i."""
    mask = 0
    for number in ids:
        mask |= 1 << number
    return mask


def models_of_class(gpu_class: str) -> frozenset[int]:
    return frozenset(number for name, number in GPU_MODEL_ID.items() if gpu_class_of(name) == gpu_class)


if tuple(GPU_CLASS_ID) != GPU_CLASSES:
    raise RuntimeError("a class of GPUs has no number, or the numbers are not in the order of the classes")
