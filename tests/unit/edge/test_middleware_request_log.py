"""A line for every request where that is wanted, and nothing in it that a prompt or a key could be read from."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from sparewatt.edge.middleware import CLIENT_LEFT, RequestLine, log_finished
from sparewatt.gateway.services import Services
from sparewatt.inference.dispatch.model import Outcome
from tests.unit.api.inference.test_endpoints import TEXT, node_of
from tests.unit.gateway.small_gateway import USER, bearer, make_services, running
from tests.unit.inference.nodes import MODEL
from tests.unit.telemetry.test_job_counter import a_failure, a_record, an_attempt
from tests.waiting import until

SECRET = "a prompt that nobody else may read"


def logging_services(*, wanted: bool = True) -> Services:
    return make_services(request_log=wanted)


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [vars(record)["fields"] for record in caplog.records if record.msg == "request_finished"]


async def ask(client: Any, path: str = "/v1/completions", key: str = USER) -> Any:
    return await client.post(path, headers=bearer(key), data=json.dumps({"model": MODEL, "prompt": SECRET}))


async def test_an_answer_leaves_a_line_with_its_ids_and_counts(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    services = logging_services()
    node = node_of(services)
    async with running(services) as client:
        node.answer_when_asked(TEXT)
        reply = await ask(client)
        await reply.read()
        await until(lambda: bool(lines(caplog)))
    (line,) = lines(caplog)
    assert line["request"] == reply.headers["x-request-id"]
    assert line["match"] == reply.headers["x-sparewatt-match-id"]
    assert (line["route"], line["status"], line["model"]) == ("POST /v1/completions", 200, MODEL)
    assert (line["attempts"], line["node"], line["tokens"], line["outcome"]) == (1, node.id, 1, "done")
    assert "code" not in line
    assert SECRET not in caplog.text
    assert USER not in caplog.text


@pytest.mark.parametrize(
    ("path", "key", "status", "code"),
    [
        ("/v1/completions", "sk-sw-nobody", 401, "invalid_api_key"),
        ("/v1/completions", USER, 404, "model_not_found"),
        ("/v1/nowhere", USER, 404, "not_found"),
    ],
)
async def test_what_was_refused_leaves_a_line_with_its_code(
    caplog: pytest.LogCaptureFixture, path: str, key: str, status: int, code: str
) -> None:
    caplog.set_level(logging.INFO)
    async with running(logging_services()) as client:
        await ask(client, path, key)
        await client.get("/healthz")
    (line,) = lines(caplog)
    assert (line["status"], line["code"]) == (status, code)
    assert key not in str(line)


async def test_a_client_that_left_leaves_a_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    services = logging_services()
    node = node_of(services)
    async with running(services) as client:
        asking = asyncio.create_task(ask(client))
        await until(lambda: bool(node.opened))
        asking.cancel()
        await client.close()
        await until(lambda: bool(lines(caplog)))
    assert lines(caplog)[0]["status"] in {CLIENT_LEFT, 200}


async def test_without_the_setting_there_is_no_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with running(logging_services(wanted=False)) as client:
        await ask(client)
    assert lines(caplog) == []


def test_an_answer_that_broke_says_by_what(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    record = a_record(an_attempt(), a_failure(), outcome=Outcome.FAILED, stream_error_code="job_failed")
    log_finished(RequestLine("req_1", "POST /v1/chat/completions", 200, 1.5), record)
    (line,) = lines(caplog)
    assert (line["code"], line["attempts"], line["tokens"], line["ms"]) == ("job_failed", 2, 51, 1500.0)
