"""The wheel that a gateway hands to nodes holds no dashboard: it may be in the making, and a node has no use for it."""

from __future__ import annotations

from pathlib import Path

from sparewatt.gateway.own_wheel import _was_made_here


def test_neither_caches_nor_the_dashboard_are_handed_out() -> None:
    made = ("gateway/web/dist/index.html", "gateway/web/dist/assets/app.js", "gateway/__pycache__/http.pyc")
    assert all(_was_made_here(Path(path)) for path in made)
    assert not any(_was_made_here(Path(path)) for path in ("gateway/web/pages.py", "store/migrations/0010_history.sql"))
