"""A home's cable, pulled for 1 s, 10 s and 60 s under running streams, with the heartbeats that a gateway has.

Run by `make soak`; writes docs/measurements/home.md.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest

from tests import namespaces
from tests.integration.asking import ask
from tests.integration.cables import ALLOWED, STREAMS, STREAMS_CONTINUE, Pulled, pull_under_streams
from tests.integration.homes import household

PULLS_S = (1.0, 1.0, 1.0, 10.0, 10.0, 60.0)
JOINED_S_MAX = 120.0
REPORT = Path(__file__).parents[2] / "docs" / "measurements" / "home.md"
LACKS = namespaces.why_not()


@pytest.mark.skipif(LACKS is not None, reason=f"NOT TESTED: a home behind NAT. {LACKS}")
def test_a_node_at_home_outlives_its_cable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "gateway.crt"))
    load = os.getloadavg()[0]
    with household(tmp_path, heartbeat_s=5.0, decode_tps=20) as joined:
        pulls = [pull_under_streams(joined, seconds=seconds) for seconds in PULLS_S]
        audit = ask(joined.gateway, "GET", "/v1/ledger/audit").json()
    REPORT.write_text(report(pulls, joined_s=joined.joined_s, load=load, in_order=audit["in_order"]))
    assert joined.joined_s < JOINED_S_MAX
    assert all(pulled.came_back and pulled.charged_once for pulled in pulls)
    assert {stream.how for pulled in pulls for stream in pulled.streams} <= ALLOWED
    assert audit["in_order"]


def report(pulls: list[Pulled], *, joined_s: float, load: float, in_order: bool) -> str:
    rows = "\n".join(
        f"| {pulled.seconds:.0f} s | {len(pulled.streams)} | {pulled.count('whole')} | {pulled.count('told')} | "
        f"{pulled.count('cut') + pulled.count('wrong')} | {pulled.back_s:.1f} s | "
        f"{'yes' if pulled.charged_once else 'NO'} |"
        for pulled in pulls
    )
    continued = "are continued elsewhere" if STREAMS_CONTINUE else "may end in an error object"
    return f"""# A node at home, and its cable

Made by `make soak` (tests/soak/test_cable.py) on {os.cpu_count()} cores, Python {platform.python_version()}. Network
namespaces: a router that rewrites addresses and lets nothing in, with an uplink of MTU {namespaces.UPLINK_MTU}; behind
it a home with Python and a model server on llama.cpp's port. The gateway listens on its outer address with TLS and
heartbeats of 5 s. The line is copied from the reply to `POST /v1/join-tokens`; what pip needs besides the gateway's own
wheel lies in a folder (`PIP_FIND_LINKS`), since the home reaches nothing else.

From an empty environment to the first whole streamed answer, installed, joined and measured: **{joined_s:.0f} s**
(with {load:.0f} processes waiting for the cores when it began).

Then the router's cable is pulled under {STREAMS} streams that prefer the home. Those that had begun there {continued};
every text is compared with what the engine must say.

| cable out | streams | whole | ended in an error object | cut or wrong | home serves again after | charged once |
| --- | --- | --- | --- | --- | --- | --- |
{rows}

'Serves again' counts from the moment the cable is back. Books in order at the end: {"yes" if in_order else "NO"}.
"""
