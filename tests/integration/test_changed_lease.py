"""A renter's side of a lease that runs: sealed secrets, pause, extension, top-up, events, and the books afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from sparewatt.cli.leases.candidate_check import ChainDisagrees, check_on_chain
from sparewatt.market.match.record import read_record
from sparewatt.market.secret_recipients import recipients_of
from sparewatt.node.leases.runtime import probe_image
from sparewatt.node.leases.runtime.egress_table import TABLE
from sparewatt.protocol.api.lease_changes import LeaseSecrets
from tests.integration.asking import ask
from tests.integration.networks import Network, start_network
from tests.integration.test_leased_container import market_is_ready, runs_containers
from tests.podman import podman_service, why_not
from tests.processes import wait_until

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
MARKET_S, RUNS_S = 90.0, 60.0
NAME = "sealed"
SECRET = "correct-horse-battery-staple-7341"
"""Found nowhere but in the container."""
MARK = "changed"
ORDER = ("--gpus=0", "--cpus=0.1", "--memory-gb=0.1", "--disk-gb=0.1", "--duration=1h", f"--name={NAME}")


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    try:
        with podman_service(tmp_path_factory.mktemp("engine")) as socket:
            folder, env = tmp_path_factory.mktemp("changed"), {"DOCKER_HOST": f"unix://{socket}"}
            with start_network(folder, "--engine=deterministic", "--nodes=1", chain=True, env=env) as network:
                wait_until(lambda: market_is_ready(network), "the market is not ready", ceiling_s=MARKET_S)
                wait_until(lambda: runs_containers(network), "containers were not proven", ceiling_s=MARKET_S)
                yield network
    finally:  # an agent leaves its table in place: leases outlive it
        subprocess.run(["nft", "delete", "table", "inet", TABLE], capture_output=True, check=False)


def run(network: Network, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    env = os.environ | {"SPAREWATT_BASE_URL": network.base_url, "SPAREWATT_API_KEY": network.api_key}
    argv = [sys.executable, "-m", "sparewatt", *words]
    return subprocess.run(argv, env=env, input=stdin, capture_output=True, text=True, timeout=120, check=False)


def sparewatt(network: Network, *words: str, stdin: str = "") -> Any:
    done = run(network, *words, "--json", stdin=stdin)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return msgspec.json.decode(done.stdout)


def shown(network: Network) -> Any:
    return sparewatt(network, "lease", "show", NAME)


def becomes(network: Network, state: str) -> None:
    wait_until(lambda: shown(network)["order"]["lease"]["state"] == state, f"it is not {state}", ceiling_s=RUNS_S)


def programs() -> list[psutil.Process]:
    found = [each for each in psutil.process_iter(["cmdline"]) if each.info["cmdline"]]
    return [each for each in found if each.info["cmdline"][0] == probe_image.PROGRAM and MARK in each.info["cmdline"]]


def chain_url(network: Network) -> str:
    return str(json.loads((network.data / "ready.json").read_text())["chain_url"])


def holds_in_plain(folder: Path) -> list[Path]:
    """Files of a network that have the secret's value in them, its database's included."""
    files = [each for each in folder.rglob("*") if each.is_file() and not each.is_symlink()]
    return [each for each in files if SECRET.encode() in each.read_bytes()]


def test_secrets_reach_the_container_and_nobody_else(network: Network) -> None:
    command = f"{probe_image.PROGRAM} say {MARK} wait 100000000"
    words = ("lease", "create", "--image", probe_image.image_tag(), "--command", command, *ORDER, "--yes")
    chain = ("--chain-url", chain_url(network))
    sparewatt(network, *words, "--secret", "HF_TOKEN=-", *chain, stdin=SECRET + "\n")
    becomes(network, "active")
    (program,) = programs()
    assert program.environ()["HF_TOKEN"] == SECRET
    assert shown(network)["missing_secrets"] == []
    assert holds_in_plain(network.data) == []


def test_a_key_that_the_chain_does_not_have_is_refused(network: Network) -> None:
    """The gateway's cheapest lie: its own key in a candidate's place."""
    order_id = shown(network)["order_id"]
    wanted = msgspec.convert(ask(network, "GET", f"/v1/leases/{NAME}/secrets").json(), LeaseSecrets)
    record = read_record(ask(network, "GET", f"/v1/leases/{NAME}/match/record").json()["record"])
    match = recipients_of(
        [record], order_id=bytes.fromhex(order_id[2:]), attempt=wanted.attempt, candidates=wanted.candidates
    )
    asyncio.run(check_on_chain(chain_url(network), order_id, wanted, match))
    (recipient,) = match.recipients
    lie = replace(match, recipients=(replace(recipient, node_key="0x" + "ab" * 20),))
    with pytest.raises(ChainDisagrees, match="not the registered node key"):
        asyncio.run(check_on_chain(chain_url(network), order_id, wanted, lie))
    with pytest.raises(ChainDisagrees, match="other candidates"):
        asyncio.run(check_on_chain(chain_url(network), order_id, wanted, replace(match, task_hash=b"\1" * 32)))


def test_a_pause_stops_program_and_meter_and_a_resume_goes_on_with_the_same_program(network: Network) -> None:
    (program,) = programs()
    paused = sparewatt(network, "lease", "pause", NAME, "--id=p")["lease"]["money"]
    again = sparewatt(network, "lease", "pause", NAME, "--id=p")
    assert (again["request"]["state"], paused["hourly_usd"]) == ("done", "0")
    later = shown(network)["money"]
    assert (later["spent_usd"], later["runs_until"]) == (again["lease"]["money"]["spent_usd"], None)
    assert run(network, "lease", "extend", NAME, "1h", "--yes").returncode != 0, "only a running lease is extended"
    sparewatt(network, "lease", "resume", NAME)
    becomes(network, "active")
    assert programs() == [program]
    assert shown(network)["money"]["paused_s"] >= later["paused_s"]


def test_an_extension_lengthens_the_end_on_the_chain_once(network: Network) -> None:
    before = shown(network)["order"]["lease"]["ends_at"]
    made = sparewatt(network, "lease", "extend", NAME, "2h", "--id=e")
    assert made["accepted"]
    assert sparewatt(network, "lease", "extend", NAME, "2h", "--id=e")["update"]["id"] == made["update"]["id"]
    lengthened = shown(network)["order"]["lease"]["ends_at"] - before
    assert 7_200 <= lengthened < 7_200 + 30
    assert float(made["lease"]["money"]["left_usd"]) * 3_600 >= float(made["plan"]["cost_usd"]) * 3_599
    assert "used before" in run(network, "lease", "extend", NAME, "3h", "--id=e").stderr
    assert run(network, "lease", "extend", NAME, "365d", "--yes").returncode != 0


def test_a_cap_holds_until_its_renter_raises_it(network: Network) -> None:
    raised = sparewatt(network, "lease", "top-up", NAME, "0.01", "--max-spend", "0.5", "--id=t")
    assert raised["lease"]["max_spend_usd"] == "0.5"
    refused = run(network, "lease", "top-up", NAME, "1")
    assert (refused.returncode, "--max-spend" in refused.stderr) == (1, True)
    added = [each["amount_usd"] for each in _events(network) if each["kind"] == "deposit_added"]
    assert added.count("0.01") == 1


def test_an_update_replaces_the_program_under_the_same_lease_and_meter(network: Network) -> None:
    (before,) = programs()
    spent = float(shown(network)["money"]["spent_usd"])
    command = f"{probe_image.PROGRAM} say {MARK} say again wait 100000000"
    made = sparewatt(network, "lease", "update", NAME, "--command", command, "--env", "COLOR=green", "--id=u")
    assert made["accepted"]

    def is_replaced() -> bool:
        found = programs()
        return len(found) == 1 and found[0].pid != before.pid and "again" in found[0].cmdline()

    wait_until(is_replaced, "the old program runs on", ceiling_s=RUNS_S)
    (program,) = programs()
    assert (program.environ()["COLOR"], program.environ()["HF_TOKEN"]) == ("green", SECRET)
    found = shown(network)
    assert (found["content"]["env"], found["order"]["lease"]["state"]) == ({"COLOR": "green"}, "active")
    assert float(found["money"]["spent_usd"]) > spent, "the meter goes on"
    repeated = sparewatt(network, "lease", "update", NAME, "--command", command, "--env", "COLOR=green", "--id=u")
    assert repeated["update"]["id"] == made["update"]["id"]
    assert "already" in run(network, "lease", "update", NAME, "--env", "COLOR=green", "--yes").stderr
    assert "no variable" in run(network, "lease", "update", NAME, "--unset", "NONE", "--yes").stderr


def test_a_close_is_told_with_its_reason_and_the_books_are_in_order(network: Network) -> None:
    sparewatt(network, "lease", "close", NAME, "--id=c")
    wait_until(lambda: programs() == [], "the container is still there", ceiling_s=RUNS_S)
    ending = shown(network)["ending"]
    assert (ending["reason"], ending["who"]) == ("RENTER", "renter")
    events = _events(network)
    assert [each["kind"] for each in events][-1] == "closed"
    assert {"paused", "resumed", "update_proposed", "updated"} <= {each["kind"] for each in events}
    put_in = sum(float(each["amount_usd"]) for each in events if each["kind"] == "deposit_added")
    assert abs(put_in - float(ending["paid_usd"]) - float(ending["refunded_usd"])) < 1e-9
    assert sparewatt(network, "lease", "close", NAME, "--id=c")["request"]["state"] == "done"
    wait_until(lambda: run(network, "ledger", "audit").returncode == 0, "the books differ", ceiling_s=RUNS_S)
    assert holds_in_plain(network.data) == []


def _events(network: Network) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = sparewatt(network, "lease", "events", NAME)["data"]
    return found
