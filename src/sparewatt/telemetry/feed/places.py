"""Regions on the map: a centre, and a radius within which nodes are drawn. Mostly data.

A node is drawn at a random spot of its region, always the same one. Its real place is never published.
"""

from __future__ import annotations

import hashlib
import math
import re
from functools import lru_cache
from typing import NamedTuple

from sparewatt.core.ids import NodeId
from sparewatt.core.limits import WORDS_REMEMBERED_MAX
from sparewatt.policy.regions import place_of

_KM_PER_DEGREE = 111.0
_LATITUDE_MAX = 80.0


class Region(NamedTuple):
    lat: float
    lon: float
    radius_km: float


_COUNTRIES = """
AE 24 54 150|AR -35 -65 700|AT 47.5 14 150|AU -27 135 1200|BD 24 90 150|BE 50.6 4.6 90|BG 42.7 25.3 150|BO -17 -64 350
BR -11 -53 1100|BY 53.5 28 200|CA 54 -100 1200|CH 46.8 8.2 100|CL -33 -71 200|CN 34 107 1000|CO 4 -73 400|CR 10 -84 80
CY 35 33.2 40|CZ 49.8 15.5 150|DE 51 10.2 280|DK 55.9 9.6 110|DZ 31 3 500|EC -1.5 -78.5 150|EE 58.7 25.5 90
EG 27 30 350|ES 40 -3.7 350|ET 9 39.5 350|FI 62.5 26 280|FR 46.7 2.4 350|GB 52.8 -1.5 230|GE 42 43.5 100|GH 7.8 -1.2 180
GR 39.3 22 150|HK 22.4 114.1 15|HR 45.4 16 100|HU 47.2 19.4 120|ID -2 113 500|IE 53.2 -8 120|IL 31.6 34.9 60
IN 22 79 800|IQ 33 44 250|IR 32.5 54 500|IS 64.9 -18.6 120|IT 43.5 11.8 220|JO 31 36.5 80|JP 36.2 138 300|KE 0.3 38 250
KH 12.6 105 130|KR 36.4 127.9 150|KW 29.4 47.6 50|KZ 48 67 700|LK 7.5 80.8 80|LT 55.3 23.9 100|LU 49.8 6.1 20
LV 56.9 25 100|MA 32 -6 250|MT 35.9 14.4 8|MX 23.5 -102 500|MY 4 102 150|NAM -22 17 350|NG 9.3 8 350|NL 52.2 5.5 110
NO 61.5 9.5 250|NP 28.2 84 150|NZ -41 173 300|OM 21 57 200|PA 8.5 -80 90|PE -10 -75 400|PH 13 122 250|PK 30 69.5 400
PL 52 19.3 250|PT 39.6 -8 150|PY -23 -58 200|QA 25.3 51.2 40|RO 45.9 25 200|RS 44 20.9 120|RU 56 60 1500|SA 24 45 500
SE 61 15 350|SG 1.35 103.8 15|SI 46.1 14.8 50|SK 48.7 19.5 90|SN 14.5 -14.5 120|TH 15.5 101 250|TN 34.5 9.5 120
TR 39 35 350|TW 23.7 121 90|TZ -6.3 35 300|UA 49 31.5 350|UG 1.3 32.4 130|US 39.5 -98 1400|UY -33 -56 150
VE 7 -66 300|VN 16 107.5 200|ZA -29 24 450|ZM -14 28 250|ZW -19 29.5 150
"""
_GROUPS = """
EU 49.5 10.5 650|EEA 52 10.5 800|EUROPE 51 15 950|NA 40 -98 1400|LATAM -12 -58 1300|AP 20 108 1500|MENA 28 38 900
AFRICA 2 21 1600
"""
_PARTS = {
    ("EU", "west"): Region(48.5, 2.5, 350),
    ("EU", "central"): Region(50.5, 12, 300),
    ("EU", "north"): Region(60, 17, 350),
    ("EU", "south"): Region(41, 13, 300),
    ("EU", "east"): Region(47.5, 22.5, 350),
    ("US", "east"): Region(38.5, -78.5, 450),
    ("US", "west"): Region(39.5, -119, 500),
    ("US", "central"): Region(40, -95, 500),
    ("US", "south"): Region(32.5, -95, 450),
    ("AP", "south"): Region(19.5, 77.5, 500),
    ("AP", "southeast"): Region(3, 104, 500),
    ("AP", "northeast"): Region(36.3, 137.5, 300),
    ("AP", "east"): Region(29, 113, 500),
}
"""Parts of a region, as in `us-east` and `eu-west`."""

_PART = re.compile(r"[A-Za-z]+-(?P<part>[A-Za-z]+)")


def _read(table: str) -> dict[str, Region]:
    entries = (entry.split() for line in table.strip().splitlines() for entry in line.split("|"))
    return {name: Region(float(lat), float(lon), float(km)) for name, lat, lon, km in entries}


REGIONS = _read(_GROUPS) | _read(_COUNTRIES)


@lru_cache(maxsize=WORDS_REMEMBERED_MAX)
def region_of(name: str) -> Region | None:
    """The region that a node names, on the map; None if it is no known place."""
    place = place_of(name)
    if place is None:
        return None
    part = _PART.fullmatch(name.strip())
    return (part and _PARTS.get((place, part["part"].lower()))) or REGIONS.get(place)


UNSAID = "unsaid"
"""The region of nodes that name no known place."""


@lru_cache(maxsize=WORDS_REMEMBERED_MAX)
def public_region(name: str) -> str:
    """A country, a group of countries or a known part of one. More of what an owner wrote could be a street."""
    place, part = place_of(name), _PART.fullmatch(name.strip())
    if place is None:
        return UNSAID
    if part is not None and (place, part["part"].lower()) in _PARTS:
        return f"{place}-{part['part']}".lower()
    return place


def spot_of(node_id: NodeId, region_name: str, *, secret: bytes) -> tuple[float, float] | None:
    """Longitude and latitude of a random spot in the region, always the same for a node of one network.

    Derived from the network's secret, as handles are: else a node id would lead to its spot, and so to its handle.
    """
    region = region_of(region_name)
    if region is None:
        return None
    chance = hashlib.blake2b(node_id.encode(), key=secret[:64], digest_size=8, person=b"sparewatt spot").digest()
    distance = math.sqrt(int.from_bytes(chance[:4], "big") / 2**32) * region.radius_km / _KM_PER_DEGREE
    angle = int.from_bytes(chance[4:], "big") / 2**32 * math.tau
    lat = max(-_LATITUDE_MAX, min(_LATITUDE_MAX, region.lat + distance * math.sin(angle)))
    lon = region.lon + distance * math.cos(angle) / math.cos(math.radians(lat))
    return round((lon + 180) % 360 - 180, 2), round(lat, 2)
