"""Money on a network of real processes: from an answer to its line in a statement, on the command line."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Callable
from typing import Any

from tests.integration.networks import Network, wait_until
from tests.integration.test_command_line import run

POSTED_S = 20.0
"""An answer is in the books within a second; a loaded machine gets longer."""


def told(network: Network, *words: str) -> Any:
    ended = run(network, *words, "--json")
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def ask(network: Network) -> str:
    """Ask something; the id of the job."""
    ended = run(network, "chat", network.model, "how much is the fish")
    assert ended.returncode == 0, ended.stderr
    job_id = next(word for word in ended.stderr.split() if word.startswith("match_")).rstrip(".,;)")
    wait_until(_is_posted(network, job_id), "the job is not in the books", ceiling_s=POSTED_S)
    return job_id


def _is_posted(network: Network, job_id: str) -> Callable[[], bool]:
    return lambda: job_id in run(network, "usage", "--by", "job", "--json").stdout


def test_an_answer_is_in_every_statement_and_the_books_are_in_order(shared_network: Network) -> None:
    before = told(shared_network, "credits")["data"]
    job_id = ask(shared_network)
    jobs = {line["id"]: line for line in told(shared_network, "usage", "--by", "job")["data"]}
    cost = jobs[job_id]["cost_nano"]
    assert cost > 0
    after = told(shared_network, "credits")["data"]
    assert before["balance_nano"] - after["balance_nano"] >= cost
    by_day = told(shared_network, "usage", "--by", "day")["data"]
    assert sum(line["cost_nano"] for line in by_day) >= sum(line["cost_nano"] for line in jobs.values())
    assert told(shared_network, "ledger", "audit")["in_order"]


def test_owners_see_the_line_with_price_fee_and_net(shared_network: Network) -> None:
    job_id = ask(shared_network)
    words = ("node", "earnings", "--account", "acc_local_nodes", "--by", "job")
    found = told(shared_network, *words, "--kwh-usd", "0.3", "--watts", "350")
    (line,) = [line for line in found["data"] if line["job_id"] == job_id]
    jobs = {job["id"]: job for job in told(shared_network, "usage", "--by", "job")["data"]}
    assert line["net_nano"] + line["fee_nano"] == jobs[job_id]["cost_nano"]
    assert found["summary"]["pending_nano"] + found["summary"]["batched_nano"] > 0
    assert found["electricity"][0]["kwh"] > 0
    printed = run(shared_network, *words)
    assert job_id in printed.stdout
    assert "Pending" in printed.stdout
    assert "node why" in printed.stderr


def test_a_statement_as_csv_has_the_lines_of_the_one_in_json(shared_network: Network) -> None:
    ask(shared_network)
    until = str(int(time.time()))
    words = ("usage", "--by", "job", "--to", until)
    lines = told(shared_network, *words)["data"]
    rows = list(csv.DictReader(io.StringIO(run(shared_network, *words, "--csv").stdout)))
    assert [row["id"] for row in rows] == [line["id"] for line in lines]
    assert [int(row["cost_nano"]) for row in rows] == [line["cost_nano"] for line in lines]


def test_a_batch_is_made_listed_and_checked_offline(shared_network: Network) -> None:
    ask(shared_network)
    batch = told(shared_network, "payouts", "make")["batch"]
    assert batch["added_micro"] > 0
    epoch = str(batch["epoch"])
    verified = told(shared_network, "payouts", "verify", epoch)
    assert (verified["verified"], verified["root"]) == (True, batch["root"])
    paid = told(shared_network, "payouts", "list", "--account", "acc_local_nodes")["data"]
    assert paid[0]["epoch"] == batch["epoch"]
    assert told(shared_network, "ledger", "audit")["in_order"]


def test_nodes_show_how_their_prices_come_about(shared_network: Network) -> None:
    ended = run(shared_network, "nodes", "show", "node-1")
    assert ended.returncode == 0, ended.stderr
    assert "/h ÷ " in ended.stdout
    assert "tok/s" in ended.stdout  # measured, or expected on a machine that is busy with tests


def test_credits_are_granted_and_deposited_by_command(shared_network: Network) -> None:
    assert run(shared_network, "credits", "deposit", "1.5", "--id", "twice").returncode == 0
    again = run(shared_network, "credits", "deposit", "1.5", "--id", "twice")
    assert "nothing changed" in again.stdout
    assert run(shared_network, "credits", "grant", "acc_local_nodes", "2").returncode == 0
    assert run(shared_network, "credits", "deposit", "-1").returncode != 0
    assert told(shared_network, "treasury", "fund", "3", "--id", "t")["posted"]
