"""All behaviours of hostile nodes."""

from __future__ import annotations

from tests.integration.hostile_nodes.knocking import KNOCKING
from tests.integration.hostile_nodes.misreporting import MISREPORTS
from tests.integration.hostile_nodes.overcharging import OVERCHARGING
from tests.integration.hostile_nodes.trapping import TRAPS

BEHAVIOURS = (*OVERCHARGING, *TRAPS, *MISREPORTS, *KNOCKING)
