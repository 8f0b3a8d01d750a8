from __future__ import annotations

from pathlib import Path

from tests.integration.llama_seams import check, llama_network, play


def test_llama_goes_on_where_another_llama_was_cut(tmp_path: Path) -> None:
    with llama_network(tmp_path, "first", "second", slots=2) as llama:
        assert check(llama, play(llama, streams=2)) > 0
