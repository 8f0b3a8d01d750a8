"""Control messages: which reports of a peer are accepted, and which are refused when decoding."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sparewatt.core.errors import ProtocolViolation
from sparewatt.core.limits import LINK_CONTROL_BYTES_MAX, MODELS_PER_NODE_MAX, NAME_CHARS_MAX, REQUEST_BODY_BYTES_MAX
from sparewatt.protocol.link.frames import (
    Challenge,
    Credit,
    Goodbye,
    Hello,
    JobEnd,
    JobFailure,
    JobReplyHead,
    JobRequest,
    LinkProof,
    Opcode,
    Reject,
    Welcome,
    decode_frames,
    decode_message,
    encode_message,
)
from sparewatt.protocol.link.node_report import MODEL_ID_CHARS_MAX, ModelReport, NodeLoad, NodeSpecs, Speed, validated
from tests.unit.protocol.reports import MODEL, SPECS, SPEED, model_json, specs_json

NONCE = "0f" * 32
HELLO = Hello(node_id="0x" + "ab" * 20, nonce=NONCE, host="gateway.example:443", token="join-sw-1")
OPEN = JobRequest(path="/v1/chat/completions", model="llama", body_bytes=2, stream=True, window_bytes=1024)
MESSAGES = [
    (Opcode.HELLO, HELLO),
    (Opcode.CHALLENGE, Challenge(nonce=NONCE, gateway_version="0.1.0")),
    (Opcode.PROOF, LinkProof(signature="1f" * 65, specs=SPECS)),
    (Opcode.WELCOME, Welcome(heartbeat_s=5.0, gateway_version="0.1.0")),
    (Opcode.REJECT, Reject(reason="no_token", message="Bring one.", final=False)),
    (Opcode.SPECS, SPECS),
    (Opcode.LOAD, NodeLoad(running=1, queued=2, foreign=3, draining=True)),
    (Opcode.GOODBYE, Goodbye(reason="")),
    (Opcode.OPEN, OPEN),
    (Opcode.CREDIT, Credit(n_bytes=1)),
    (Opcode.HEAD, JobReplyHead(status=200, content_type="text/event-stream")),
    (Opcode.END, JobEnd(load=NodeLoad(), first_byte_s=0.1, duration_s=2.0)),
    (Opcode.FAIL, JobFailure(code="refused", message="full", load=NodeLoad())),
]


@pytest.mark.parametrize(("op", "message"), MESSAGES, ids=lambda value: getattr(value, "name", type(value).__name__))
def test_a_message_comes_out_as_it_went_in(op: Opcode, message: msgspec.Struct) -> None:
    (frame,) = decode_frames(encode_message(op, message, stream=3))
    assert (frame.op, frame.stream) == (op, 3)
    assert decode_message(frame.payload, type(message)) == message


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b'{"running":NaN}',
        b'{"running":-1}',
        b'{"running":1e999}',
        b'{"running":100001}',
        b'{"running":1.5}',
        b'{"running":"1"}',
        b'{"draining":0}',
        b"[" * 100_000,
        b'{"x":' * 50_000,
    ],
)
def test_a_malformed_load_is_refused(payload: bytes) -> None:
    with pytest.raises(ProtocolViolation, match="NodeLoad"):
        decode_message(payload, NodeLoad)


def test_an_unknown_field_of_a_later_version_is_ignored() -> None:
    assert decode_message(b'{"running":1,"mood":"good"}', NodeLoad) == NodeLoad(running=1)


def test_a_message_over_the_limit_is_refused_before_it_is_read() -> None:
    padding = b" " * LINK_CONTROL_BYTES_MAX
    assert decode_message(b"{}" + padding[2:], NodeLoad) == NodeLoad()
    with pytest.raises(ProtocolViolation, match="limit"):
        decode_message(b"{}" + padding, NodeLoad)


# what a node says it is

TEN_TB = 10 * 10**12


@pytest.mark.parametrize(
    "change",
    [
        {"vram_bytes": TEN_TB},
        {"vram_bytes": 0},
        {"tflops": 1e6},
        {"tflops": 0},
        {"hourly_price_nano": 0},
        {"gpu_count": 0},
        {"gpu_count": 1024},
        {"slots": 4096},
        {"models": []},
        {"name": "n" * NAME_CHARS_MAX},
        {"name": "Anns Rechner ☕"},
        {"tflops_measured": 1e6},
    ],
)
def test_unusual_specs_are_accepted(change: dict[str, Any]) -> None:
    specs = decode_message(specs_json(**change), NodeSpecs)
    assert validated(specs) == specs


@pytest.mark.parametrize(
    "change",
    [
        {"vram_bytes": -1},
        {"vram_bytes": (1 << 50) + 1},
        {"vram_bytes": 1.5},
        {"tflops": -0.1},
        {"tflops": 1e6 + 1},
        {"tflops": None},
        {"tflops_measured": 2e6},
        {"hourly_price_nano": -1},
        {"hourly_price_nano": 10**15 + 1},
        {"gpu_count": 1025},
        {"slots": 0},
        {"slots": 4097},
        {"name": ""},
        {"name": "n" * (NAME_CHARS_MAX + 1)},
        {"name": "two\nlines"},
        {"name": "ends\n"},
        {"region": "\x1b[31mred"},
        {"gpu": 5},
        {"models": [{}]},
        {"models": [msgspec.to_builtins(MODEL)] * (MODELS_PER_NODE_MAX + 1)},
    ],
)
def test_absurd_specs_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ProtocolViolation):
        decode_message(specs_json(**change), NodeSpecs)


@pytest.mark.parametrize(
    "change",
    [
        {"prompt_price_nano": 0, "completion_price_nano": 0},
        {"context_length": None},
        {"measured": None},
        {"id": "org/model:7b-q4_K_M"},
        {"id": "m" * MODEL_ID_CHARS_MAX},
    ],
)
def test_an_unusual_model_is_accepted(change: dict[str, Any]) -> None:
    decode_message(model_json(**change), ModelReport)


@pytest.mark.parametrize(
    "change",
    [
        {"id": ""},
        {"id": "m" * (MODEL_ID_CHARS_MAX + 1)},
        {"id": "two words"},
        {"id": "ends\n"},
        {"state": "hot"},
        {"weights_bytes": -1},
        {"weights_bytes": (1 << 50) + 1},
        {"kv_bytes_per_token": -1},
        {"prompt_price_nano": -1},
        {"completion_price_nano": 10**15 + 1},
        {"context_length": 0},
        {"quantization": ""},
        {"measured": {"prefill_tps": 0, "decode_tps": 1}},
        {"measured": {"prefill_tps": 1, "decode_tps": -5}},
        {"measured": {"prefill_tps": 1e8, "decode_tps": 1}},
        {"claimed": {"prefill_tps": 1, "decode_tps": 1, "ttft_s": 4000}},
    ],
)
def test_an_absurd_model_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ProtocolViolation):
        decode_message(model_json(**change), ModelReport)


def test_text_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(ProtocolViolation, match="Goodbye"):
        decode_message(b'{"reason":"\xff"}', Goodbye)


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999", b"0x10", b"01"])
def test_a_number_that_is_none_is_refused(number: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        decode_message(b'{"prefill_tps":1,"decode_tps":' + number + b"}", Speed)


def test_a_sender_can_validate_as_the_receiver_will() -> None:
    assert validated(SPECS) == SPECS
    with pytest.raises(msgspec.ValidationError):
        validated(msgspec.structs.replace(SPECS, region=""))


def test_a_report_with_the_most_models_fits_into_a_control_message() -> None:
    speed = Speed(prefill_tps=9999999.999, decode_tps=9999999.999, ttft_s=3599.9999)
    largest = ModelReport(
        id="m" * MODEL_ID_CHARS_MAX,
        state="loading",
        weights_bytes=1 << 50,
        kv_bytes_per_token=1 << 30,
        prompt_price_nano=10**15,
        completion_price_nano=10**15,
        context_length=1 << 26,
        quantization="q" * NAME_CHARS_MAX,
        claimed=speed,
        measured=speed,
    )
    specs = msgspec.structs.replace(SPECS, models=(largest,) * MODELS_PER_NODE_MAX)
    proof = LinkProof(signature="1f" * 65, specs=specs)
    (frame,) = decode_frames(encode_message(Opcode.PROOF, proof))
    assert decode_message(frame.payload, LinkProof) == proof


# the handshake and jobs


def changed(message: msgspec.Struct, change: dict[str, Any]) -> bytes:
    return msgspec.json.encode(msgspec.to_builtins(message) | change)


@pytest.mark.parametrize(
    "change",
    [
        {"node_id": "0x" + "AB" * 20},
        {"node_id": "0x" + "ab" * 19},
        {"node_id": "0x" + "ab" * 20 + "\n"},
        {"node_id": "ab" * 21},
        {"nonce": "0f" * 31},
        {"nonce": "0F" * 32},
        {"nonce": "0f" * 32 + "\n"},
        {"nonce": ""},
        {"host": "h" * 501},
        {"host": None},
        {"token": "t" * 201},
        {"protocol": "1"},
        {"agent_version": "\x00"},
    ],
)
def test_a_malformed_hello_is_refused(change: dict[str, Any]) -> None:
    assert decode_message(changed(HELLO, {}), Hello) == HELLO
    with pytest.raises(ProtocolViolation):
        decode_message(changed(HELLO, change), Hello)


@pytest.mark.parametrize("signature", ["", "1f" * 64, "1f" * 66, "1F" * 65, "1f" * 65 + "\n", "zz" * 65])
def test_a_proof_without_a_signatures_shape_is_refused(signature: str) -> None:
    with pytest.raises(ProtocolViolation):
        decode_message(changed(LinkProof(signature="1f" * 65, specs=SPECS), {"signature": signature}), LinkProof)


@pytest.mark.parametrize(
    "change",
    [
        {"path": "/slots"},
        {"path": "/v1/chat/completions/../../props"},
        {"path": "http://other.example/v1/chat/completions"},
        {"body_bytes": -1},
        {"body_bytes": REQUEST_BODY_BYTES_MAX + 1},
        {"window_bytes": 0},
        {"window_bytes": (1 << 30) + 1},
        {"promised_ttft_s": -1},
        {"stream": None},
    ],
)
def test_a_job_for_anything_else_than_the_model_server_is_refused(change: dict[str, Any]) -> None:
    assert decode_message(changed(OPEN, {}), JobRequest) == OPEN
    with pytest.raises(ProtocolViolation):
        decode_message(changed(OPEN, change), JobRequest)


@pytest.mark.parametrize(
    ("shape", "payload"),
    [
        (Credit, b'{"n_bytes":0}'),
        (Credit, b'{"n_bytes":-5}'),
        (Credit, b'{"n_bytes":1073741825}'),
        (JobReplyHead, b'{"status":99}'),
        (JobReplyHead, b'{"status":600}'),
        (JobFailure, b'{"code":"tired","message":""}'),
        (JobFailure, b'{"code":"refused","message":"' + b"x" * 501 + b'"}'),
        (JobEnd, b"{}"),
        (JobEnd, b'{"load":{},"duration_s":-1}'),
        (JobEnd, b'{"load":{},"first_byte_s":1e999}'),
        (Welcome, b'{"heartbeat_s":0,"gateway_version":"1"}'),
        (Welcome, b'{"heartbeat_s":601,"gateway_version":"1"}'),
        (Challenge, b'{"nonce":"00","gateway_version":"1"}'),
    ],
)
def test_a_message_out_of_bounds_is_refused(shape: type[msgspec.Struct], payload: bytes) -> None:
    with pytest.raises(ProtocolViolation, match=shape.__name__):
        decode_message(payload, shape)


def test_the_example_reports_are_valid() -> None:
    assert validated(SPEED) == SPEED
    assert validated(MODEL) == MODEL


def test_a_violation_names_the_field_and_repeats_nothing_of_its_value() -> None:
    with pytest.raises(ProtocolViolation) as caught:
        decode_message(b'{"code":"a \'marker\' of a stranger","message":""}', JobFailure)
    assert "$.code" in str(caught.value)
    assert "marker" not in str(caught.value)
