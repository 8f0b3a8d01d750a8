"""The plain status page, shown until the dashboard is built: totals by region and model, and no node by name."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Collection

from sparewatt.inference.matcher.node_row import NodeRow, NodeState
from sparewatt.telemetry.feed.places import public_region

_SYMBOLS = {
    NodeState.ONLINE: "●",
    NodeState.BUSY: "◐",
    NodeState.SUSPECT: "◔",
    NodeState.OFFLINE: "✕",
    NodeState.DRAINING: "‖",
    NodeState.PAUSED: "‖",
}
MODELS_SHOWN = 200
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="5">
<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,"><title>Sparewatt</title>
<style>
:root{{color-scheme:light dark;--ink:#FFFFFF;--line:#D8DEE4;--text:#10161D;--muted:#57626E;--volt:#9A6B00}}
@media(prefers-color-scheme:dark){{:root{{--ink:#0B0F14;--line:#1E2733;--text:#E6EDF3;--muted:#8B98A5;--volt:#F2B705}}}}
body{{background:var(--ink);color:var(--text);font:16px/1.5 system-ui;margin:40px auto;max-width:720px;padding:0 16px}}
h1{{font-size:24px}}h2{{font-size:16px;margin-top:32px}}b,td,code{{font-family:ui-monospace,monospace}}
table{{border-collapse:collapse;width:100%}}td,th{{text-align:left;padding:8px;border-bottom:1px solid var(--line)}}
p,th{{color:var(--muted);font-weight:normal}}b{{color:var(--volt);font-size:24px}}
</style></head><body>
<h1>Sparewatt</h1>
<p><b>{online}</b> of {total} nodes online &nbsp; <b>{running}</b> jobs running &nbsp; <b>{models}</b> models</p>
<h2>Regions</h2><table><tr><th>Region</th><th>Nodes</th></tr>{regions}</table>
<h2>Models</h2><table><tr><th>Model</th><th>Nodes</th><th>Warm</th></tr>{model_rows}</table>
<p>The dashboard is being built, or is not part of this install. This page refreshes by itself. Until then:
<code>sparewatt nodes</code>, <code>sparewatt models</code>; from a checkout, <code>make web</code> builds it.</p>
</body></html>"""


def render_status(nodes: Collection[tuple[NodeRow, NodeState]], *, jobs_running: int) -> str:
    """As HTML. What nodes report of themselves is escaped."""
    by_region: dict[str, Counter[NodeState]] = {}
    models: Counter[str] = Counter()
    warm: Counter[str] = Counter()
    for row, state in nodes:
        by_region.setdefault(public_region(row.specs.region), Counter())[state] += 1
        for model in row.models.values() if row.connected else ():
            models[model.id] += 1
            warm[model.id] += model.state == "warm"
    return _PAGE.format(
        online=sum(state is not NodeState.OFFLINE for _, state in nodes),
        total=len(nodes),
        running=jobs_running,
        models=len(models),
        regions="".join(_table_row(region, _state_counts(by_region[region])) for region in sorted(by_region)),
        model_rows="".join(
            _table_row(model, str(models[model]), str(warm[model])) for model, _ in models.most_common(MODELS_SHOWN)
        ),
    )


def _table_row(*cells: str) -> str:
    return "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"


def _state_counts(states: Counter[NodeState]) -> str:
    return "  ".join(f"{_SYMBOLS[state]} {states[state]} {state.value}" for state in NodeState if states[state])
