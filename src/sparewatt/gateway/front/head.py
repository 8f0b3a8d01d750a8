"""The head of a request, as llhttp read it, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sparewatt.core.errors import BadRequest, HeadTooLarge, SparewattError, UnsupportedMediaType
from sparewatt.core.limits import HEAD_BYTES_MAX, HEAD_FIELDS_MAX, TARGET_BYTES_MAX

RawHeaders = Sequence[tuple[bytes, bytes]]
_ONCE = ("host", "authorization", "content-length", "content-type", "idempotency-key", "content-encoding")
"""Of these, two would let two readers of the same bytes see two requests."""


class Head(NamedTuple):
    method: bytes
    target: bytes
    version: str
    keep_alive: bool
    raw: RawHeaders
    headers: dict[str, str]
    """Names in lower case; what was said twice is joined by a comma."""

    @property
    def path(self) -> str:
        return self.target.partition(b"?")[0].decode("latin-1")

    @property
    def length(self) -> int | None:
        """Of the body, where it was said. llhttp has seen to it that it is a number."""
        said = self.headers.get("content-length")
        return int(said) if said is not None else None

    @property
    def is_chunked(self) -> bool:
        return "transfer-encoding" in self.headers

    @property
    def expects_continue(self) -> bool:
        return self.headers.get("expect", "").lower() == "100-continue"


def joined(raw: RawHeaders) -> tuple[dict[str, str], str | None]:
    """The fields by name, and the name of one that may stand there once and does not."""
    headers: dict[str, str] = {}
    twice: str | None = None
    for name, value in raw:
        known, said = name.lower().decode("latin-1"), value.decode("latin-1")
        if known in headers:
            twice = known if known in _ONCE else twice
            said = f"{headers[known]}, {said}"
        headers[known] = said
    return headers, twice


def fault_of(head: Head, *, twice: str | None, size_bytes: int) -> SparewattError | None:
    """What is wrong with a head that could be read. Such a request is answered, and its connection closed."""
    if size_bytes > HEAD_BYTES_MAX or len(head.raw) > HEAD_FIELDS_MAX or len(head.target) > TARGET_BYTES_MAX:
        return HeadTooLarge(
            f"The request's head is too large: at most {HEAD_BYTES_MAX // 1024} KiB and {HEAD_FIELDS_MAX} fields."
        )
    if twice is not None:
        return BadRequest(f"The header {twice!r} stands there twice.")
    if "host" not in head.headers and head.version == "1.1":
        return BadRequest("A request names the host that it is for.")
    return _misfit_of(head.headers)


def _misfit_of(headers: Mapping[str, str]) -> SparewattError | None:
    """What is asked for and not done here."""
    if headers.get("transfer-encoding", "chunked").lower() != "chunked":
        return BadRequest("The only transfer encoding is 'chunked'.")
    if headers.get("content-encoding", "identity").lower() != "identity":
        return UnsupportedMediaType("Send the body as it is, without a content encoding.")
    if headers.get("expect", "100-continue").lower() != "100-continue":
        return BadRequest("The only expectation that can be met is '100-continue'.")
    return None
