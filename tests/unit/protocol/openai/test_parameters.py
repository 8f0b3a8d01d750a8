"""Which fields are forwarded, which are dropped, and which of those the reply names."""

from __future__ import annotations

import msgspec
import pytest

from sparewatt.protocol.link.frames import JobPath
from sparewatt.protocol.openai.parameters import (
    FORWARDED_FIELDS,
    INERT_FIELDS,
    header_names,
    ignored_fields,
    unknown_fields,
)

CHAT: JobPath = "/v1/chat/completions"


def fields(**values: object) -> dict[str, msgspec.Raw]:
    return {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in values.items()}


@pytest.mark.parametrize("name", ["n_predict", "chat_template", "priority", "id_slot", "logits_processors", "lora"])
def test_fields_that_affect_a_server_beyond_one_answer_are_dropped(name: str) -> None:
    assert all(name not in passed for passed in FORWARDED_FIELDS.values())


def test_inert_fields_are_dropped_for_every_endpoint() -> None:
    assert all(INERT_FIELDS.isdisjoint(passed) for passed in FORWARDED_FIELDS.values())


def test_a_field_at_its_default_is_dropped_without_being_named() -> None:
    given = fields(model="m", messages=[], audio=None, store=False, service_tier="auto", provider={}, top_k=1)
    assert unknown_fields(given, CHAT) == ("audio", "store", "service_tier")
    assert ignored_fields(given, CHAT) == ()
    assert ignored_fields(fields(store=True, service_tier="flex", x=0), CHAT) == ("store", "service_tier", "x")


def test_each_endpoint_has_fields_of_its_own() -> None:
    assert ignored_fields(fields(messages=[], input="a"), "/v1/embeddings") == ("messages",)
    assert ignored_fields(fields(messages=[], suffix="a"), "/v1/completions") == ("messages",)


def test_names_from_clients_are_made_safe_for_a_header() -> None:
    names = header_names(("fine", "a b\r\nc", "ü" * 100, *(str(number) for number in range(100))))
    assert names[:2] == ("fine", "a_b__c")
    assert all(name.isascii() and len(name) <= 64 for name in names)
    assert len(names) == 32
