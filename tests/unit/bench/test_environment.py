"""A report says whether it was made with what users install."""

from __future__ import annotations

from bench.environment import describe, sentence


def test_an_installation_is_told_from_the_test_environment() -> None:
    installed = sentence(".venv-installed", {"numpy", "sparewatt"}, compiled=True)
    assert "`.venv-installed`, 2 packages, as `make setup` makes it, without the test tools, without numba" in installed
    tests = sentence(".venv", {"numba", "numpy", "pytest", "sparewatt"}, compiled=True)
    assert "`.venv`, 4 packages, the test environment, with numba" in tests


def test_the_scan_is_named() -> None:
    assert "scan is the compiled one" in sentence("v", set(), compiled=True)
    assert "scan is numpy's" in sentence("v", set(), compiled=False)


def test_tests_run_in_the_test_environment() -> None:
    assert "the test environment" in describe()
