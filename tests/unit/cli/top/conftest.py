"""Views of `sparewatt top` for its tests."""

from __future__ import annotations

from typing import Any

import msgspec

from sparewatt.cli.top.view import PulseWindow, TopView
from sparewatt.protocol.api.operations import Pulse


def view_after(*pulses: dict[str, Any]) -> TopView:
    window = PulseWindow("https://gateway.example")
    for pulse in pulses:
        view = window.update(msgspec.convert(pulse, Pulse))
    return view
