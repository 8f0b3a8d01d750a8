"""`sparewatt match`: which node would get a job and why (a dry run); `match explain`: the same of a past match.

Both print one explanation: the funnel of filters, the ranked candidates with the parts of their cost, the attempts on a
time line, or why no node could have the job.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient, path_of
from sparewatt.cli.context import network_options
from sparewatt.cli.errors import ExitCode
from sparewatt.cli.groups import DefaultGroup, ImplicitCommand, examples
from sparewatt.cli.output import Column, Fact, left, prose, right
from sparewatt.cli.routing import JobRouting, routing_options
from sparewatt.protocol.api.matches import (
    DryRunExplanation,
    FunnelStep,
    MatchAttempt,
    MatchExplanation,
    NodeRejection,
    RankedNode,
)

Explanation = MatchExplanation | DryRunExplanation

_BAR_CHARS = 24
_REJECTED_SHOWN = 20
_RANKING_DEFAULT = "balanced"
_PART_HEADERS = {"price": "PRICED"}
"""For a part whose name would mislead: the price itself has another column."""

_PART_NOTES = {
    "price": "priced is the price, counted as time",
    "jitter": "jitter spreads near ties: a fixed hash of match and node",
}


@click.group(cls=DefaultGroup, default="preview", takes_word=True, subcommand_metavar="MODEL | explain ID")
@examples("sparewatt match smollm2-135m --prompt-tokens 2000", "sparewatt match explain match_5k0wq2")
def match() -> None:
    """Show which node would take a job for MODEL, and why. Nothing runs."""


@match.command("preview", cls=ImplicitCommand, hidden=True)
@click.argument("model")
@click.option("--prompt-tokens", type=click.IntRange(min=1), default=500, show_default=True, help="Tokens sent.")
@click.option(
    "--max-tokens",
    type=click.IntRange(min=1),
    default=256,
    show_default=True,
    help="The most tokens wanted back; the estimate is the smaller of this and what the model typically writes.",
)
@routing_options
@network_options
@examples(
    "sparewatt match smollm2-135m --prompt-tokens 2000 --max-tokens 500",
    "sparewatt match smollm2-135m --route 'region=EU gpu_class>=a100'",
    "sparewatt match smollm2-135m --policy policy.yaml --ranking fast",
)
def preview(
    client: ApiClient, *, model: str, prompt_tokens: int, max_tokens: int, routing: JobRouting, as_json: bool
) -> None:
    """Show which node would take a job for MODEL, and why. Nothing runs."""
    job = {"model": model, "prompt_tokens": prompt_tokens, "max_tokens": max_tokens}
    job |= {"policy": routing.ranking or _RANKING_DEFAULT, **routing.body}
    reply = client.post("/match", job, headers=routing.headers)
    reply.show(DryRunExplanation, _print_explanation, as_json=as_json)
    if reply.parse(DryRunExplanation).chosen is None:
        raise click.exceptions.Exit(ExitCode.NO_MATCH)


@match.command("explain")
@click.argument("match_id", metavar="ID")
@network_options
@examples("sparewatt match explain match_5k0wq2")
def explain(client: ApiClient, *, match_id: str, as_json: bool) -> None:
    """Explain a past match: which nodes were ranked how, which were tried, and with which outcome."""
    client.get(path_of("matches", match_id)).show(MatchExplanation, _print_explanation, as_json=as_json)


def _print_explanation(explanation: Explanation) -> None:
    output.print_facts(_facts(explanation))
    if explanation.funnel:
        _print_funnel(explanation)
    if explanation.rejected:
        _print_rejected(explanation.rejected)
    if explanation.ranked:
        # `chosen` is the node of the last attempt; if there were several, the first went to the best candidate.
        has_moved = explanation.moves and explanation.attempts
        best = explanation.attempts[0].node if has_moved else explanation.chosen
        _print_ranked(explanation.ranked, chosen=best)
    for move in explanation.moves:
        if move.candidates:
            after = f"after {move.after_tokens} tokens" if move.after_tokens else "before the first token"
            _print_ranked(move.candidates, chosen=move.chosen, who=f"Candidates to go on {after}")
    if explanation.attempts and isinstance(explanation, MatchExplanation):
        _print_attempts(explanation.attempts, is_streamed=explanation.streamed)
    _print_verdict(explanation)


def _facts(explanation: Explanation) -> list[Fact]:
    job = explanation.job
    tokens = f"{output.format_count(job.prompt_tokens)} tokens in, {output.format_count(job.output_tokens)} out"
    facts: list[Fact] = [
        ("Model", explanation.model),
        ("Ranking", explanation.policy),
        ("Job", f"{tokens}, needs {output.format_bytes(job.vram_needed_bytes)}"),
    ]
    if explanation.match_id is None:
        return facts
    when = output.ago(explanation.created_at, now_s=time.time())
    return [("Match", explanation.match_id), *facts, ("Outcome", explanation.outcome), ("When", when)]


def _print_funnel(explanation: Explanation) -> None:
    output.print_title("Filters")
    total = explanation.candidates_total
    columns: list[Column[FunnelStep]] = [
        left("FILTER", lambda step: step.filter),
        right("DROPPED", lambda step: str(step.dropped) if step is not start else ""),
        right("LEFT", lambda step: str(step.left)),
        left("", lambda step: _bar(step.left, total=max(total, step.left))),
    ]
    start = FunnelStep(filter="all nodes", dropped=0, left=total)
    output.print_table(columns, [start, *explanation.funnel], may_drop=("",))


def _bar(n: int, *, total: int) -> str:
    """At least one mark for at least one node."""
    return "█" * max(1, round(_BAR_CHARS * n / total)) if n > 0 else ""


def _print_rejected(rejected: Sequence[NodeRejection]) -> None:
    output.print_title("Not considered")
    columns: list[Column[NodeRejection]] = [
        left("NODE", lambda node: output.node_label(node.node, node.name)),
        left("REASON", lambda node: node.reason.replace("_", " ")),
        prose("DETAIL", lambda node: node.detail),
    ]
    output.print_table(columns, rejected[:_REJECTED_SHOWN], may_drop=("DETAIL",))
    if len(rejected) > _REJECTED_SHOWN:
        print(f"and {len(rejected) - _REJECTED_SHOWN} more; --json prints all")


def _print_ranked(ranked: Sequence[RankedNode], *, chosen: str | None, who: str = "Candidates") -> None:
    in_ms = ranked[0].cost_s is not None
    output.print_title(f"{who}, expected cost in ms, least first" if in_ms else f"{who}, score, best first")
    names = list(dict.fromkeys(name for node in ranked for name in node.parts))
    shown = [name for name in names if any(node.parts.get(name) for node in ranked)]
    parts = [_part_column(name) for name in shown]
    quantization: list[Column[RankedNode]] = [left("QUANT", lambda node: node.quantization or output.UNKNOWN)]
    if not any(node.quantization for node in ranked):
        quantization = []
    columns: list[Column[RankedNode]] = [
        left("", lambda node: "→" if node.node == chosen else ""),
        left("NODE", lambda node: output.node_label(node.node, node.name)),
        left("REGION", lambda node: node.region or output.UNKNOWN),
        *quantization,
        right("COST" if in_ms else "SCORE", lambda node: _number(node, node.cost_s if in_ms else node.score)),
        *parts,
        right("USD", lambda node: output.format_usd(node.price_usd)),
    ]
    may_drop = [
        "REGION",
        *(column.header for column in quantization),
        "USD",
        *(part.header for part in reversed(parts)),
    ]
    output.print_table(columns, ranked, may_drop=may_drop, is_marked=lambda node: node.node == chosen)
    if zeros := [name for name in names if name not in shown]:
        output.print_lines([f"Zero for all: {', '.join(zeros)}"])
    output.print_lines(note for name, note in _PART_NOTES.items() if name in shown)


def _part_column(name: str) -> Column[RankedNode]:
    header = _PART_HEADERS.get(name, name.replace("_", " ").upper())
    return right(header, lambda node: _number(node, node.parts.get(name)))


def _number(node: RankedNode, value: float | None) -> str:
    """Seconds of a cost as milliseconds; the numbers of a score as they are."""
    if value is None:
        return output.UNKNOWN
    return f"{value:.3f}" if node.cost_s is None else output.plain_ms(value * 1000)


def _print_attempts(attempts: Sequence[MatchAttempt], *, is_streamed: bool) -> None:
    bars = "░ waiting, █ answering" if is_streamed else "░ waiting and answering"
    output.print_title(f"Attempts, in ms since the request came ({bars})")
    end_ms = max(_last_ms(attempt) for attempt in attempts)
    columns: list[Column[MatchAttempt]] = [
        left("NODE", lambda attempt: output.node_label(attempt.node, attempt.name)),
        left("OUTCOME", lambda attempt: attempt.outcome.replace("_", " ")),
        right("START", lambda attempt: output.plain_ms(attempt.started_ms)),
        right("FIRST", lambda attempt: output.plain_ms(attempt.first_token_ms)),
        right("END", lambda attempt: output.plain_ms(attempt.ended_ms)),
        right("TOKENS", lambda attempt: str(attempt.tokens)),
        left("TIME LINE", lambda attempt: time_line(attempt, end_ms=end_ms)),
        prose("REASON", lambda attempt: attempt.reason or ""),
    ]
    output.print_table(columns, attempts, may_drop=("TIME LINE", "TOKENS", "START", "END", "FIRST", "REASON"))
    for attempt in attempts:
        if (seam := attempt.continued_from) is not None:
            node = output.node_label(attempt.node, attempt.name)
            output.print_lines([f"{node} went on after {seam.tokens} tokens ({seam.chars} characters)"])
    if not is_streamed and attempts[-1].outcome == "done":
        output.print_lines(["The answer came in one piece: it has no time of a first token."])


def _last_ms(attempt: MatchAttempt) -> float:
    return max(attempt.started_ms, attempt.first_token_ms or 0.0, attempt.ended_ms or 0.0)


def time_line(attempt: MatchAttempt, *, end_ms: float) -> str:
    """One attempt as a bar: blank before it starts, light until the first token, solid while tokens come."""
    scale = _BAR_CHARS / end_ms if end_ms > 0 else 0.0
    start = min(round(attempt.started_ms * scale), _BAR_CHARS - 1)
    end = max(round(_last_ms(attempt) * scale), start + 1)
    first = end if attempt.first_token_ms is None else round(attempt.first_token_ms * scale)
    waiting = max(0, min(first, end) - start)
    return (" " * start + "░" * waiting + "█" * (end - start - waiting)).ljust(_BAR_CHARS)


def _print_verdict(explanation: Explanation) -> None:
    print()
    output.print_lines([_verdict(explanation)])
    if explanation.is_trial:
        print("The first candidate was new to the network: it was tried so that its speed could be timed.")
    if explanation.chosen is None and explanation.nearest_relaxations:
        print("What would help most:")
        output.print_lines(f"  - {relaxation}" for relaxation in explanation.nearest_relaxations)


def _verdict(explanation: Explanation) -> str:
    """One sentence: where the job goes, or went, or why nowhere."""
    is_dry_run = isinstance(explanation, DryRunExplanation)
    if isinstance(explanation, DryRunExplanation) and explanation.why_nobody:
        return explanation.why_nobody
    if explanation.chosen is None:
        return f"No node {'can take' if is_dry_run else 'took'} this job."
    if explanation.outcome == "failed":
        return f"No node answered{' to the end' if any(attempt.tokens for attempt in explanation.attempts) else ''}."
    nodes: list[RankedNode | MatchAttempt] = [*explanation.ranked, *explanation.attempts]
    name = next((each.name for each in nodes if each.node == explanation.chosen), None)
    node = f"{name} ({explanation.chosen})" if name else explanation.chosen
    return f"{'Would go' if is_dry_run else 'Went'} to {node}."
