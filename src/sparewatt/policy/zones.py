"""Zones: parts of the world between which the network's latency is known roughly, and the distances between them.

A distance is a typical round-trip time in milliseconds between two large data centres of the zones, rounded; the home
of a node adds its own last mile. Ids are published, so a zone is never renumbered or removed; new ones are appended.
Zone 0 means unknown. It is as far away as the farthest zone: who does not say where a machine is gains nothing by it.
"""

from __future__ import annotations

import re
from functools import lru_cache

from sparewatt.core.limits import WORDS_REMEMBERED_MAX
from sparewatt.policy.regions import COUNTRIES, COVERS, place_of

ZONES_MAX = 32
"""A distance row on chain has a byte for each."""
UNKNOWN_ZONE = 0
ZONES = (
    *("us-east", "us-central", "us-west", "canada", "central-america", "south-america", "europe-west", "europe-north"),
    *("europe-east", "middle-east", "africa", "south-asia", "southeast-asia", "east-asia", "japan-korea", "oceania"),
    "north-africa",
)
"""In the order of their ids, which begin at 1."""

_DISTANCES = """
8
35 10
65 40 8
20 40 65 10
60 45 75 75 20
115 140 175 130 145 10
80 110 140 90 135 185 15
105 130 160 110 155 215 25 15
110 135 165 115 160 220 35 40 15
165 195 220 175 220 280 95 115 80 20
220 250 280 235 280 330 155 175 170 200 40
190 215 220 195 250 300 120 145 125 40 230 10
220 195 170 215 245 320 160 185 175 95 250 60 8
205 175 145 205 220 310 190 205 190 130 280 95 40 15
155 130 105 150 175 260 220 240 230 165 330 125 70 50 8
200 175 145 205 215 310 250 280 270 180 300 150 95 130 110 15
120 150 180 130 175 220 45 65 60 75 160 145 190 225 260 290 30
"""
"""One row per zone, with the distances to the zones before it and, last, within it."""

_COUNTRIES_OF = {
    "us-central": "US",
    "canada": "CA GL PM",
    "central-america": "AG AI AW BB BL BM BQ BS BZ CR CU CW DM DO GD GP GT HN HT JM KN KY LC MF MQ MS MX NI PA PR SV SX"
    " TC TT VC VG VI",
    "south-america": "AR BO BR BV CL CO EC FK GF GS GY PE PY SR UY VE",
    "europe-west": "AD AT BA BE CH CZ DE ES FR GB GG GI HR HU IE IM IT JE LI LU MC MT NL PL PT SI SK SM VA",
    "europe-north": "AX DK EE FI FO IS LT LV NO SE SJ",
    "europe-east": "AL AM AZ BG BY CY GE GR KG KZ MD ME MK RO RS RU TJ TM TR UA UZ XK",
    "middle-east": "AE BH IL IQ IR JO KW LB OM PS QA SA SY YE",
    "africa": "AO BF BI BJ BW CD CF CG CI CM CV DJ ER ET GA GH GM GN GQ GW KE KM LR LS MG ML MR MU MW MZ NAM NE NG RE"
    " RW SC SD SH SL SN SO SS ST SZ TD TG TZ UG YT ZA ZM ZW",
    "south-asia": "AF BD BT IN IO LK MV NP PK",
    "southeast-asia": "BN CC CX ID KH LA MM MY PH SG TH TL VN",
    "east-asia": "CN HK MN MO TW",
    "japan-korea": "JP KP KR",
    "oceania": "AQ AS AU CK FJ FM GU HM KI MH MP NC NF NR NU NZ PF PG PN PW SB TF TK TO TV UM VU WF WS",
    "north-africa": "DZ EG EH LY MA TN",
}
"""The zone of a machine of which only the country is known; the United States lie in three, and count as the middle."""
_PARTS = {
    ("US", "east"): "us-east",
    ("US", "central"): "us-central",
    ("US", "south"): "us-central",
    ("US", "west"): "us-west",
    ("EU", "west"): "europe-west",
    ("EU", "central"): "europe-west",
    ("EU", "south"): "europe-west",
    ("EU", "north"): "europe-north",
    ("EU", "east"): "europe-east",
    ("AP", "south"): "south-asia",
    ("AP", "southeast"): "southeast-asia",
    ("AP", "northeast"): "japan-korea",
    ("AP", "east"): "east-asia",
}
"""Regions that name a part of a place: `us-west`, `eu-north`."""
_PART = re.compile(r"-([a-z]+)\Z")

ZONE_ID = {name: number for number, name in enumerate(ZONES, start=1)}
_ZONE_OF_COUNTRY = {country: ZONE_ID[zone] for zone, names in _COUNTRIES_OF.items() for country in names.split()}
_ZONES_OF_US = frozenset(ZONE_ID[name] for name in ("us-east", "us-central", "us-west"))


def _distance_table() -> tuple[tuple[int, ...], ...]:
    """Square and symmetric, by id; unknown zones are as far away as the farthest."""
    rows = [[int(ms) for ms in row.split()] for row in _DISTANCES.split("\n") if row]
    known = [[rows[max(a, b)][min(a, b)] for b in range(len(ZONES))] for a in range(len(ZONES))]
    farthest = max(max(row) for row in known)
    table = [[farthest] * ZONES_MAX for _ in range(ZONES_MAX)]
    for number, row in enumerate(known, start=1):
        table[number] = [max(row), *row, *[max(row)] * (ZONES_MAX - 1 - len(row))]
    return tuple(tuple(row) for row in table)


DISTANCE_MS = _distance_table()
"""`DISTANCE_MS[a][b]`: between two zones by id."""


def zone_of_country(country: str) -> int:
    """0 for no country."""
    return _ZONE_OF_COUNTRY.get(country, UNKNOWN_ZONE)


@lru_cache(maxsize=WORDS_REMEMBERED_MAX)
def zone_of_region(region: str) -> int:
    """The zone that a node's reported region stands for: `DE`, `us-west`, `eu-north`.

    0 if it stands for none or for several: a node that says `EU` or `AP` is nowhere in particular.
    """
    place = place_of(region)
    if place is None:
        return UNKNOWN_ZONE
    part = _PART.search(region.strip().lower())
    named = _PARTS.get((place, part[1])) if part else None
    if named is not None:
        return ZONE_ID[named]
    return zone_of_country(place)


def zones_of_place(place: str) -> frozenset[int]:
    """All zones in which a country, or a country of a group, lies."""
    found = {_ZONE_OF_COUNTRY[country] for country in COVERS[place] & COUNTRIES}
    return frozenset(found | _ZONES_OF_US if ZONE_ID["us-central"] in found else found)


@lru_cache(maxsize=WORDS_REMEMBERED_MAX)
def distances_from(place: str) -> tuple[int, ...]:
    """Milliseconds from a country or group to each zone, by id: from the nearest part of it.

    An unknown zone, and an id that no zone has, is as far as the farthest of the zones.
    """
    rows = [DISTANCE_MS[zone] for zone in zones_of_place(place)]
    known = [min(column) for column in zip(*rows, strict=True)][1 : len(ZONES) + 1]
    return (max(known), *known, *[max(known)] * (ZONES_MAX - 1 - len(known)))
