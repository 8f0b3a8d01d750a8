from __future__ import annotations

import itertools
import json

from hypothesis import given
from hypothesis import strategies as st

from sparewatt.protocol.responses.chat_chunks import ChunkReader, StreamChunk, read_chunk


@given(cuts=st.lists(st.integers(0, 400), max_size=8), texts=st.lists(st.text(), min_size=1, max_size=5))
def test_chunks_are_read_wherever_the_bytes_are_cut(cuts: list[int], texts: list[str]) -> None:
    events = [json.dumps({"choices": [{"delta": {"content": text}}]}, ensure_ascii=False) for text in texts]
    body = "".join(f": comment\n\ndata: {event}\n\n" for event in events).encode(errors="replace") + b"data: [DONE]\n\n"
    places = sorted({0, len(body), *(cut for cut in cuts if cut < len(body))})
    reader = ChunkReader()
    read: list[StreamChunk] = []
    for start, end in itertools.pairwise(places):
        read += reader.feed(body[start:end])
    said = [(one.choices or [])[0].content_delta.text for one in read]
    assert said == [text.encode(errors="replace").decode() for text in texts]


def test_an_unreadable_chunk_is_skipped() -> None:
    assert read_chunk(b"nonsense") is None
    assert list(ChunkReader().feed(b"data: nonsense\n\ndata: [DONE]\n\n")) == []
