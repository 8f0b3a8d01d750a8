"""The dashboard explains errors by their codes: every code that it knows is one that a gateway gives."""

from __future__ import annotations

import re
from pathlib import Path

from sparewatt.core import errors

MEANINGS = Path(__file__).parents[3] / "web" / "src" / "pages" / "status" / "meanings.ts"


def test_the_status_page_explains_codes_that_exist() -> None:
    explained = set(re.findall(r"^  (\w+): \"", MEANINGS.read_text(), re.MULTILINE))
    given = {kind.code for kind in vars(errors).values() if isinstance(kind, type) and hasattr(kind, "code")}
    assert explained
    assert explained <= given
