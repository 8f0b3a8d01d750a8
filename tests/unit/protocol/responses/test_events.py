from __future__ import annotations

from sparewatt.protocol.responses.events import as_sse


def test_an_event_names_its_kind_twice() -> None:
    assert as_sse({"type": "response.created", "x": 1}) == (
        b'event: response.created\ndata: {"type":"response.created","x":1}\n\n'
    )
