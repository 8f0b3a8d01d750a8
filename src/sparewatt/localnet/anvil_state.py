"""A dump of anvil's state, made fit to be loaded again. Pure.

Loading adds the new process's own first block to those in the file, and a dump lists all of them without saying which
one counts; after the next start any of them may. So only the blocks that the chain itself shows are kept.
"""

from __future__ import annotations

import gzip
import io
import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from sparewatt.core.limits import CHAIN_STATE_BYTES_MAX

HeaderLookup = Callable[[str], Mapping[str, Any] | None]
"""The header that the chain shows for a number in hex."""


def loadable_state(packed: bytes, header_of: HeaderLookup) -> bytes:
    """The file to write for what `anvil_dumpState` gave. Raises ValueError when it cannot be kept."""
    state = json.loads(_unpack(packed))
    if not isinstance(state, dict) or not isinstance(state.get("blocks"), list):
        raise ValueError("this is no dump of a chain")  # noqa: TRY004 (a value that came over the wire)
    state["blocks"] = _canonical_blocks(state["blocks"], header_of)
    return json.dumps(state, separators=(",", ":")).encode()


def _unpack(packed: bytes) -> bytes:
    with gzip.open(io.BytesIO(packed)) as file:
        text = file.read(CHAIN_STATE_BYTES_MAX + 1)
    if len(text) > CHAIN_STATE_BYTES_MAX:
        raise ValueError("the local chain has grown too large to be kept")
    return text


def _canonical_blocks(blocks: list[dict[str, Any]], header_of: HeaderLookup) -> list[dict[str, Any]]:
    entries = Counter(block["header"]["number"] for block in blocks)
    shown = {number: header_of(number) for number, count in entries.items() if count > 1}
    return [block for block in blocks if _is_canonical(block["header"], shown)]


def _is_canonical(header: Mapping[str, Any], shown: Mapping[str, Mapping[str, Any] | None]) -> bool:
    number = header["number"]
    if number not in shown:
        return True
    its = shown[number]
    return its is not None and all(its.get(name, value) == value for name, value in header.items())
