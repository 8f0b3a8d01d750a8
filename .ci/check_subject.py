#!/usr/bin/env python3
"""A commit-msg hook: refuses a subject that is missing or longer than 72 characters.

git gives it the file with the message. Lines that begin with `#` are comments of the editor's template.
"""

from __future__ import annotations

import sys
from pathlib import Path

SUBJECT_CHARS_MAX = 72
"""`git log --oneline` fits into 80 columns, and hosts do not cut the subject."""


def subject_of(message: str) -> str:
    lines = (line.strip() for line in message.splitlines() if not line.startswith("#"))
    return next((line for line in lines if line), "")


def fault_of(subject: str) -> str | None:
    """The reason to refuse the subject; None if it is fine."""
    if not subject:
        return "The commit has no subject."
    excess = len(subject) - SUBJECT_CHARS_MAX
    if excess > 0:
        return f"The subject has {len(subject)} characters, {excess} more than {SUBJECT_CHARS_MAX}: {subject}"
    return None


if __name__ == "__main__":
    sys.exit(fault_of(subject_of(Path(sys.argv[1]).read_text(encoding="utf-8"))))
