"""One thing that was looked at, and what came of it."""

from __future__ import annotations

from typing import Literal

import msgspec

CheckVerdict = Literal["ok", "warning", "failure"]


class DoctorCheck(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    verdict: CheckVerdict
    found: str
    """What is so, in a sentence."""
    advice: str = ""
    """What to do about it; empty where nothing has to be done."""


def ok(name: str, found: str) -> DoctorCheck:
    return DoctorCheck(name, "ok", found)


def warning(name: str, found: str, advice: str) -> DoctorCheck:
    return DoctorCheck(name, "warning", found, advice)


def failure(name: str, found: str, advice: str) -> DoctorCheck:
    return DoctorCheck(name, "failure", found, advice)
