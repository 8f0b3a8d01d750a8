"""The content document of a lease: what shall run. The chain has its hash, bidders get its text.

Everybody who is asked for a bid can read it. Secrets are in it by name only; their values are sealed by the renter to
the candidates of the certificate.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from sparewatt.core.errors import InvalidField
from sparewatt.core.limits import KIB
from sparewatt.protocol.canonical_json import canonical_json
from sparewatt.protocol.signing import keccak256

CONTENT_BYTES_MAX = 64 * KIB
ARGUMENTS_MAX, ARGUMENT_CHARS_MAX = 256, 16 * KIB
ENV_MAX, ENV_VALUE_CHARS_MAX = 512, 16 * KIB
SECRETS_MAX, PORTS_MAX = 64, 32
IMAGE_CHARS_MAX = 512

NO_NUL = r"^[^\x00]*\Z"
ImageName = Annotated[str, Meta(max_length=IMAGE_CHARS_MAX, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]*\Z")]
"""A reference as registries have them: host, path, tag, digest. No blanks or control characters, no leading dash."""
Argument = Annotated[str, Meta(max_length=ARGUMENT_CHARS_MAX, pattern=NO_NUL)]
VariableName = Annotated[str, Meta(max_length=256, pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*\Z")]
VariableValue = Annotated[str, Meta(max_length=ENV_VALUE_CHARS_MAX, pattern=NO_NUL)]
Port = Annotated[int, Meta(ge=1, le=65_535)]


class LeaseContent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    image: ImageName
    command: Annotated[tuple[Argument, ...], Meta(max_length=ARGUMENTS_MAX)] = ()
    """Empty: the image's own."""
    env: Annotated[dict[VariableName, VariableValue], Meta(max_length=ENV_MAX)] = {}
    ports: Annotated[tuple[Port, ...], Meta(max_length=PORTS_MAX)] = ()
    secrets: Annotated[tuple[VariableName, ...], Meta(max_length=SECRETS_MAX)] = ()
    """Names. A secret becomes a variable of its name."""
    restart: Literal["always", "on_failure", "never"] = "always"
    """When the program is started again after it ended."""
    read_only: bool = False
    """Whether the root file system is."""
    gateway: bool | UnsetType = UNSET
    """Whether the program may open a node's link to the network's gateway, by a port that the machine's agent serves on
    the lease's bridge. Left out of the text where it is not wanted, as in documents of earlier releases."""
    version: Literal[1] = 1


def write_content(content: LeaseContent) -> str:
    """The canonical text, whose hash the specification has. Raises InvalidField."""
    try:
        text = canonical_json(msgspec.to_builtins(content))
    except ValueError as error:
        raise InvalidField(f"The order cannot be written: {error}.", param="env") from None
    _require_size(text)
    return text


def read_content(text: str) -> LeaseContent:
    """The document of a lookup, a stranger's text: its ranges are checked. Raises InvalidField."""
    _require_size(text)
    try:
        return msgspec.json.decode(text, type=LeaseContent)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InvalidField(f"This is no content document: {error}.", param="content") from None


def content_hash_of(text: str) -> bytes:
    return keccak256(text.encode())


def _require_size(text: str) -> None:
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > CONTENT_BYTES_MAX:
        raise InvalidField(
            f"Image, command, environment and ports have {size:,} bytes together; {CONTENT_BYTES_MAX:,} are allowed.",
            param="env",
        )
