"""A backup taken while the network works, and the network that comes of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

from tests.integration.asking import ask, stream_chat
from tests.integration.networks import Network
from tests.integration.operated import bare_environment, joined_node, operated_gateway, sparewatt
from tests.integration.people import sign_up
from tests.processes import wait_until

WORKERS = 6
BEFORE, AFTER = 20, 10
"""Answers that are whole before the backup begins, and that come after it has ended."""


@dataclass
class Load:
    """Somebody who asks all the time, and remembers what was answered."""

    network: Network
    answered: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def work(self, worker: int) -> None:
        number = 0
        while not self.over.is_set():
            number += 1
            answer = stream_chat(self.network, f"Worker {worker} asks question {number}.", max_tokens=10)
            if answer.done and answer.error is None:
                self.answered.append(answer.headers["x-sparewatt-match-id"])

    def during(self, act: Callable[[], None]) -> None:
        with ThreadPoolExecutor(WORKERS) as pool:
            working = [pool.submit(self.work, worker) for worker in range(WORKERS)]
            try:
                act()
            finally:
                self.over.set()
            for each in working:
                each.result()


def test_a_network_restored_from_a_backup_under_load_has_every_answered_job_once(tmp_path: Path) -> None:
    env = bare_environment(tmp_path)
    file = tmp_path / "network.tar.gz"
    known: list[str] = []
    with (
        operated_gateway(tmp_path / "one", "--signup=open", env=env) as first,
        joined_node(first, tmp_path, "busy", decode_tps=400, env=env),
    ):
        ann = changed(first, api_key=sign_up(first, "ann@example.org").key)
        load = Load(ann)

        def back_up() -> None:
            wait_until(lambda: len(load.answered) >= BEFORE, "too few answers before the backup")
            known.extend(load.answered)
            made = sparewatt("backup", str(file), f"--data={first.data}", "--json", env=env)
            assert made.returncode == 0, made.stderr
            assert json.loads(made.stdout)["has_secret"]
            so_far = len(load.answered)
            wait_until(lambda: len(load.answered) >= so_far + AFTER, "too few answers after the backup")

        load.during(back_up)
        told = {job: _job(ann, job) for job in known}
    assert file.stat().st_mode & 0o777 == 0o600
    restored = sparewatt("restore", str(file), f"--data={tmp_path / 'two' / 'gateway'}", "--json", env=env)
    assert restored.returncode == 0, restored.stderr
    assert json.loads(restored.stdout)["books_in_order"]
    with operated_gateway(tmp_path / "two", env=env) as second:
        again = changed(second, api_key=ann.api_key)  # a key is a key, on whatever machine
        assert {job: _job(again, job) for job in known} == told
        jobs = ask(again, "GET", "/v1/usage?by=job&limit=1000").json()["data"]
        spent = ask(again, "GET", "/v1/credits").json()["data"]["total_usage"]
        assert len({job["id"] for job in jobs}) == len(jobs) >= BEFORE
        assert abs(sum(int(job["cost_nano"]) for job in jobs) / 1e9 - spent) < 1e-9
        audit = sparewatt("ledger", "audit", "--json", env=env | _as(second))
        assert audit.returncode == 0, audit.stdout + audit.stderr
        assert json.loads(audit.stdout)["in_order"]
    refused = sparewatt("restore", str(file), f"--data={tmp_path / 'two' / 'gateway'}", env=env)
    assert refused.returncode == 1
    assert "is there already" in refused.stderr


def _as(network: Network) -> dict[str, str]:
    return {"SPAREWATT_BASE_URL": network.base_url, "SPAREWATT_API_KEY": network.api_key}


def _job(network: Network, match_id: str) -> dict[str, Any]:
    """As its payer sees it once it is settled. A node's name is no part of the books: it is stored a little later."""
    found: dict[str, Any] = {}

    def is_settled() -> bool:
        reply = ask(network, "GET", f"/v1/generation?id={match_id}")
        found.update(reply.json().get("data", {}))
        return reply.status == 200

    wait_until(is_settled, f"{match_id} is not in the books")
    for attempt in found["attempts"]:
        del attempt["node_name"]
    return {name: found[name] for name in ("id", "state", "tokens_completion", "cost_usd", "attempts")}
