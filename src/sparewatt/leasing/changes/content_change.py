"""What a renter changes of the program of a running lease: image, command and variables. Pure.

Ports, secrets and sizes stay: a provider has promised the capacity of the order, and secrets are sealed by name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from sparewatt.core.errors import InvalidField, UnprocessableContent
from sparewatt.leasing.orders.order_fields import read_content_fields, read_env
from sparewatt.protocol.contracts.lease_content import LeaseContent, content_hash_of, read_content, write_content
from sparewatt.protocol.typed_message import struct_hash
from sparewatt.store.lease_orders import LeaseSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentChange:
    """None leaves it as it is."""

    image: str | None = None
    command: str | list[str] | None = None
    """Empty: the image's own."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that are set, beside those that are there."""
    unset: tuple[str, ...] = ()
    """Variables that are taken away."""

    @property
    def asked(self) -> str:
        """To tell a repeated request from another one."""
        text = json.dumps([self.image, self.command, dict(self.env), self.unset], sort_keys=True)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    def apply(self, content: LeaseContent) -> LeaseContent:
        """Raises InvalidField."""
        unknown = [name for name in self.unset if name not in content.env]
        if unknown:
            raise InvalidField(f"'unset': the lease has no variable {unknown[0][:60]!r}.", param="unset")
        kept = {name: value for name, value in content.env.items() if name not in self.unset}
        read = read_content_fields(
            {
                "image": self.image or content.image,
                "command": list(content.command) if self.command is None else self.command,
                "env": {**kept, **self.env},
                "secrets": list(content.secrets),
                "ports": list(content.ports),
            }
        )
        return msgspec.structs.replace(content, image=read.image, command=read.command, env=read.env)


def read_content_change(
    *, image: str | None, command: str | list[str] | None, env: Any, unset: list[str]
) -> ContentChange | None:
    """None if nothing of the program shall change. Raises InvalidField."""
    if image is None and command is None and not env and not unset:
        return None
    return ContentChange(image=image, command=command, env=read_env(env), unset=tuple(unset))


def changed_spec(running: LeaseSpec, change: ContentChange) -> LeaseSpec:
    """What would run, with its hash. Raises InvalidField, or UnprocessableContent if it is what runs."""
    text = write_content(change.apply(read_content(running.content)))
    content_hash = content_hash_of(text)
    specification = replace(running.specification, content_hash=content_hash)
    spec_hash = "0x" + struct_hash(specification).hex()
    if spec_hash == running.spec_hash:
        raise UnprocessableContent("The lease runs like this already.")
    return LeaseSpec(spec_hash, specification, text)
