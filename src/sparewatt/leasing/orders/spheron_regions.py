"""The names of regions that a Spheron ICL may use, as ISO codes: https://docs.spheron.network/rent-gpu/supports. Pure.

They are shortened names of countries (`afghan`, `korea-south`). None may be taken apart: `el-salvador` is not Greece.
"""

from __future__ import annotations

_TABLE = """
afghan AF, albania AL, algeria DZ, andorra AD, angola AO, antigua-b AG, argentina AR, armenia AM, australia AU,
austria AT, azerbaijan AZ, bahamas BS, bahrain BH, bangladesh BD, barbados BB, belarus BY, belgium BE, belize BZ,
benin BJ, bhutan BT, bolivia BO, bosnia-h BA, botswana BW, brazil BR, brunei BN, bulgaria BG, burkina-f BF, burundi BI,
cabo-verde CV, cambodia KH, cameroon CM, canada CA, cent-afr CF, chad TD, chile CL, china CN, colombia CO, comoros KM,
congo-dr CD, congo-r CG, costa-rica CR, croatia HR, cuba CU, cyprus CY, czech-rep CZ, denmark DK, djibouti DJ,
dominica DM, dominican-r DO, ecuador EC, egypt EG, el-salvador SV, equatorial-g GQ, eritrea ER, estonia EE, eswatini SZ,
ethiopia ET, fiji FJ, finland FI, france FR, gabon GA, gambia GM, georgia GE, germany DE, ghana GH, greece GR,
grenada GD, guatemala GT, guinea GN, guinea-b GW, guyana GY, haiti HT, honduras HN, hungary HU, iceland IS, india IN,
indonesia ID, iran IR, iraq IQ, ireland IE, israel IL, italy IT, jamaica JM, japan JP, jordan JO, kazakhstan KZ,
kenya KE, kiribati KI, korea-south KR, kosovo XK, kuwait KW, kyrgyzstan KG, laos LA, latvia LV, lebanon LB, lesotho LS,
liberia LR, libya LY, liechtenstein LI, lithuania LT, luxembourg LU, madagascar MG, malawi MW, malaysia MY, maldives MV,
mali ML, malta MT, marshall-i MH, mauritania MR, mauritius MU, mexico MX, micronesia FM, moldova MD, monaco MC,
mongolia MN, montenegro ME, morocco MA, mozambique MZ, myanmar MM, namibia NAM, nauru NR, nepal NP, netherlands NL,
new-zealand NZ, nicaragua NI, niger NE, nigeria NG, north-macedon MK, norway NO, oman OM, pakistan PK, palau PW,
panama PA, papua-n-g PG, paraguay PY, peru PE, philippines PH, poland PL, portugal PT, qatar QA, romania RO, russia RU,
rwanda RW, saint-k-n KN, saint-lucia LC, saint-v-g VC, samoa WS, san-marino SM, sao-tome-p ST, saudi-arabia SA,
senegal SN, serbia RS, seychelles SC, sierra-leone SL, singapore SG, slovakia SK, slovenia SI, solomon-i SB, somalia SO,
south-africa ZA, south-sudan SS, spain ES, sri-lanka LK, sudan SD, suriname SR, sweden SE, switzerland CH, syria SY,
taiwan TW, tajikistan TJ, tanzania TZ, thailand TH, timor-leste TL, togo TG, tonga TO, trinidad-t TT, tunisia TN,
turkey TR, turkmenistan TM, tuvalu TV, uganda UG, ukraine UA, uae AE, uk GB, uruguay UY, uzbekistan UZ, vanuatu VU,
vatican-c VA, venezuela VE, vietnam VN, yemen YE, zambia ZM, zimbabwe ZW
"""
COUNTRY_OF_REGION: dict[str, str] = dict(entry.split() for entry in _TABLE.split(","))
