from __future__ import annotations

from typing import Any

import pytest

from sparewatt.core.errors import InvalidField, UnprocessableContent
from sparewatt.leasing.changes.change_rules import LeaseChange
from sparewatt.leasing.changes.content_change import ContentChange, changed_spec, read_content_change
from sparewatt.protocol.contracts.lease_content import LeaseContent, content_hash_of, read_content, write_content
from sparewatt.protocol.contracts.match import Specification
from sparewatt.protocol.typed_message import struct_hash
from sparewatt.store.lease_orders import LeaseSpec

CONTENT = LeaseContent(
    image="me/web:1",
    command=("serve",),
    env={"COLOR": "red", "SIZE": "1"},
    ports=(8080,),
    secrets=("TOKEN",),
    restart="never",
    gateway=True,
)


def running(content: LeaseContent = CONTENT) -> LeaseSpec:
    text = write_content(content)
    specification = Specification(
        content_hash=content_hash_of(text), gpus=1, cpu_milli=1, memory_mib=2, disk_mib=3, egress=1, secrets=1
    )
    return LeaseSpec("0x" + struct_hash(specification).hex(), specification, text)


def change(**fields: Any) -> ContentChange:
    found = read_content_change(**({"image": None, "command": None, "env": {}, "unset": []} | fields))
    assert found is not None
    return found


def test_only_what_is_named_changes() -> None:
    made = changed_spec(running(), change(image="me/web:2", env={"COLOR": "green", "NEW": 1}, unset=["SIZE"]))
    content = read_content(made.content)
    assert (content.image, content.env) == ("me/web:2", {"COLOR": "green", "NEW": "1"})
    kept = (content.command, content.ports, content.secrets, content.restart, content.gateway)
    assert kept == (("serve",), (8080,), ("TOKEN",), "never", True)
    assert made.specification.content_hash == content_hash_of(made.content)
    assert made.spec_hash == "0x" + struct_hash(made.specification).hex() != running().spec_hash
    assert (made.specification.memory_mib, made.specification.secrets) == (2, 1), "its size is what was ordered"


@pytest.mark.parametrize(("command", "expected"), [("", ()), ("a 'b c'", ("a", "b c")), (["x"], ("x",))])
def test_a_command_is_replaced_or_left_to_the_image(command: Any, expected: tuple[str, ...]) -> None:
    assert read_content(changed_spec(running(), change(command=command)).content).command == expected


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"unset": ["NONE"]}, "unset"),
        ({"image": "a b"}, "image"),
        ({"env": {"TOKEN": "plain"}}, "secrets"),
        ({"env": ["no-sign"]}, "env"),
        ({"env": {"X": "y" * 70_000}}, "env"),
    ],
)
def test_what_no_document_can_hold_is_refused_by_its_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidField) as refused:
        changed_spec(running(), change(**fields))
    assert refused.value.param == param


def test_what_runs_already_is_said() -> None:
    with pytest.raises(UnprocessableContent, match="already"):
        changed_spec(running(), change(env={"COLOR": "red"}))


def test_nothing_asked_is_no_change_and_two_asked_differ() -> None:
    assert read_content_change(image=None, command=None, env=[], unset=[]) is None
    one, two = (LeaseChange(content=change(env={"A": each})).asked for each in ("1", "2"))
    assert one != two
    assert LeaseChange().asked == "0 None None None", "as before this could be changed"
