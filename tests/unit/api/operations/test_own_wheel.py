"""The wheel that a gateway hands to nodes holds no dashboard: it may be in the making, and a node has no use for it."""

from __future__ import annotations

from pathlib import Path

from sparewatt.api.operations.own_wheel import _is_excluded


def test_neither_caches_nor_the_dashboard_are_handed_out() -> None:
    made = ("api/dashboard/dist/index.html", "api/dashboard/dist/assets/app.js", "gateway/__pycache__/http.pyc")
    assert all(_is_excluded(Path(path)) for path in made)
    assert not any(_is_excluded(Path(path)) for path in ("api/dashboard/pages.py", "store/migrations/0010_history.sql"))
