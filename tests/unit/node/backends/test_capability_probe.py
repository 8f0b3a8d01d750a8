"""Capabilities that a server does not report are probed, and count only with evidence."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest

from sparewatt.machine.spawn import free_port
from sparewatt.node.backends.backend import Backend, BackendError, BackendModel, BadBackendReply
from sparewatt.node.backends.capability_probe import PROBES_MAX, ProbedCapabilities, has_evidence, probe_capabilities
from sparewatt.node.backends.openai import OpenAIBackend
from sparewatt.protocol.link.node_report import Capability
from tests.unit.node.rig import MODEL, ScriptedBackend, backend_model, rigged

ALL: tuple[Capability, ...] = ("completions", "embeddings", "tools", "json_schema", "logprobs")


async def test_every_capability_of_a_complete_server_is_found(tmp_path: Path) -> None:
    async with rigged(tmp_path) as rig:
        assert await probe_capabilities(rig.backend, MODEL, ALL) == ALL


@pytest.mark.parametrize("answer", [b"", b"no JSON", b"[]", b"{}", b'{"choices":[{}]}', b'{"choices":[{"text":7}]}'])
async def test_a_server_that_ignores_a_field_does_not_get_the_capability(answer: bytes) -> None:
    backend = ScriptedBackend([answer], content_type="application/json")
    assert await probe_capabilities(backend, MODEL, ALL) == ()


async def test_a_refusal_and_a_crash_are_no_capabilities() -> None:
    async with aiohttp.ClientSession() as session:
        gone = OpenAIBackend(f"http://127.0.0.1:{free_port()}", session)
        with pytest.raises(BackendError):
            await probe_capabilities(gone, MODEL, ALL)
    assert await probe_capabilities(ScriptedBackend(status=501), MODEL, ALL) == ()


async def test_a_server_that_does_not_answer_is_probed_a_bounded_number_of_times() -> None:
    probed_ids = list[str]()

    async def find(_: Backend, one: BackendModel) -> tuple[Capability, ...]:
        probed_ids.append(one.id)
        if len(probed_ids) == 1:
            raise BadBackendReply("busy")
        return ("tools",)

    async def never(_: Backend, one: BackendModel) -> tuple[Capability, ...]:
        probed_ids.append(one.id)
        raise BadBackendReply("gone")

    embedder = backend_model(capabilities=("embeddings",))
    probed = ProbedCapabilities(ScriptedBackend(), find)
    assert [await probed.probe(embedder) for _ in range(3)] == [False, True, False]
    assert probed.of(embedder) == ("tools",)
    probed_ids.clear()
    never_answered = ProbedCapabilities(ScriptedBackend(), never)
    assert not any([await never_answered.probe(embedder) for _ in range(9)])
    assert len(probed_ids) == PROBES_MAX


def test_text_that_only_looks_like_a_tool_call_is_no_evidence() -> None:
    said = {"choices": [{"message": {"content": 'say({"yes": true})', "tool_calls": None}}]}
    assert not has_evidence("tools", said)
    assert not has_evidence("json_schema", {"choices": [{"message": {"content": "yes"}}]})
    assert not has_evidence("json_schema", {"choices": [{"message": {"content": '{"yes": true, "no": 1}'}}]})
    assert not has_evidence("logprobs", {"choices": [{"logprobs": None}]})
    assert not has_evidence("chat", {})
