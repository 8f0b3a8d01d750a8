"""Regions as data: ISO 3166 countries, and groups of them.

A node's place is a country, or a group if it reports no more than `EU`. A region in a policy is the set of places that
it covers, so that levels compose by intersection. Namibia is `NAM`, since `NA` is North America here.
"""

from __future__ import annotations

import re
from functools import lru_cache

from sparewatt.core.limits import WORDS_REMEMBERED_MAX

_EU = "AT BE BG HR CY CZ DK EE FI FR DE GR HU IE IT LV LT LU MT NL PL PT RO SK SI ES SE"
_EEA = f"{_EU} IS LI NO"
_MEMBERS = {
    "EU": _EU,
    "EEA": _EEA,
    "EUROPE": f"{_EEA} AD AL AX BA BY CH FO GB GG GI IM JE MC MD ME MK RS RU SJ SM UA VA XK",
    "NA": "US CA MX",
    "LATAM": "AI AG AR AW BB BL BM BO BQ BR BS BZ CL CO CR CU CW DM DO EC FK GD GF GP GT GY HN HT JM KN KY LC MF MQ MS"
    " MX NI PA PE PR PY SR SV SX TC TT UY VC VE VG VI",
    "AP": "AS AU BD BN BT CC CK CN CX FJ FM GU HK ID IN JP KH KI KP KR LA LK MH MM MN MO MP MV MY NC NF NP NR NU NZ PF"
    " PG PH PK PN PW SB SG TH TK TL TO TV TW UM VN VU WF WS",
    "MENA": "AE BH DJ DZ EG EH IL IQ IR JO KW LB LY MA OM PS QA SA SY TN TR YE",
    "AFRICA": "AO BF BI BJ BW CD CF CG CI CM CV DJ DZ EG EH ER ET GA GH GM GN GQ GW KE KM LR LS LY MA MG ML MR MU MW MZ"
    " NAM NE NG RE RW SC SD SH SL SN SO SS ST SZ TD TG TN TZ UG YT ZA ZM ZW",
}
_IN_NO_GROUP = "AF AM AQ AZ BV GE GL GS HM IO KG KZ PM TF TJ TM UZ"
_ALIASES = {"UK": "GB", "EL": "GR", "APAC": "AP", "USA": "US"}

_COUNTRIES_OF = {group: frozenset(members.split()) for group, members in _MEMBERS.items()}
COUNTRIES = frozenset(_IN_NO_GROUP.split()).union(*_COUNTRIES_OF.values())
GROUPS = tuple(sorted(_COUNTRIES_OF, key=lambda group: (-len(_COUNTRIES_OF[group]), group)))
"""Largest first, so that `shortest_names` finds the fewest words."""

_PLACE = re.compile(r"(?P<first>[A-Za-z]{2,6})(?:-[A-Za-z]{1,20})?")


def _covered(group: str) -> frozenset[str]:
    """A group covers its countries, itself, and every group within it."""
    countries = _COUNTRIES_OF[group]
    return countries | {other for other, members in _COUNTRIES_OF.items() if members <= countries}


COVERS = {group: _covered(group) for group in GROUPS} | {country: frozenset({country}) for country in COUNTRIES}
"""The places that each country or group covers."""
PLACES = COUNTRIES | frozenset(GROUPS)


def code_of(word: str) -> str | None:
    """The country or group of this name, in upper or lower case; None if there is none."""
    code = _ALIASES.get(word.upper(), word.upper())
    return code if code in PLACES else None


@lru_cache(maxsize=WORDS_REMEMBERED_MAX)
def place_of(region: str) -> str | None:
    """The place that a node's reported region stands for: `DE`, `de-berlin`, `eu-west`.

    A name with a number is a cloud's region (`eu-west-2` is London, outside the EU) and stands for none.
    """
    match = _PLACE.fullmatch(region.strip())
    return code_of(match["first"]) if match else None


def outside(places: frozenset[str]) -> frozenset[str]:
    """All places that do not overlap with these."""
    return frozenset(place for place in PLACES if not COVERS[place] & places)


def shortest_names(places: frozenset[str]) -> list[str]:
    """The same places in the fewest words: a group where all its countries are included."""
    left, names = set(places), []
    for group in GROUPS:
        if COVERS[group] <= places and COVERS[group] & left:
            names.append(group)
            left -= COVERS[group]
    return names + sorted(left)
