"""`sparewatt match`: which node would take a job and why, and `match explain`: what became of a past one.

Both print the same explanation: the filter funnel, the ranked candidates part by part, the attempts on a time line, or
why nobody could.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import click
import msgspec

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient, path_of
from sparewatt.cli.context import RANKINGS, json_option, network_options
from sparewatt.cli.errors import ExitCode
from sparewatt.cli.groups import DefaultGroup, ImplicitCommand
from sparewatt.policy.parser import HEADER

_BAR_CHARS = 24
_REJECTED_SHOWN = 20
_PART_HEADERS = {"price": "PRICED"}
"""Where a part's name alone would mislead: the money itself stands in a column of its own."""

_PART_NOTES = {
    "price": "priced is the price, counted as time",
    "jitter": "jitter spreads near ties: a fixed hash of match and node",
}


class Job(msgspec.Struct):
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    vram_needed_bytes: int | None = None


class FilterStep(msgspec.Struct):
    filter: str
    dropped: int
    left: int


class Rejected(msgspec.Struct):
    node: str
    name: str | None = None
    reason: str = ""
    detail: str | None = None


class Candidate(msgspec.Struct):
    """A node that passed the filters. `parts` are seconds where there is a `cost_s`, else plain numbers."""

    node: str
    name: str | None = None
    region: str | None = None
    cost_s: float | None = None
    score: float | None = None
    parts: dict[str, float] = {}
    price_usd: str | None = None


class Seam(msgspec.Struct):
    """How much of an answer other nodes had written."""

    tokens: int
    chars: int


class Attempt(msgspec.Struct):
    node: str
    name: str | None = None
    outcome: str = "running"
    reason: str | None = None
    started_ms: float = 0.0
    first_token_ms: float | None = None
    ended_ms: float | None = None
    tokens: int = 0
    chars: int = 0
    continued_from: Seam | None = None


class Move(msgspec.Struct):
    """A later choice, when the node before had failed."""

    chosen: str
    after_tokens: int = 0
    candidates: list[Candidate] = []


class Explanation(msgspec.Struct):
    model: str
    policy: str
    match_id: str | None = None
    dry_run: bool = False
    created_at: float | None = None
    job: Job | None = None
    candidates_total: int = 0
    funnel: list[FilterStep] = []
    rejected: list[Rejected] = []
    ranked: list[Candidate] = []
    chosen: str | None = None
    outcome: str = "none"
    streamed: bool = True
    attempts: list[Attempt] = []
    moves: list[Move] = []
    nearest_relaxations: list[str] = []
    why_nobody: str | None = None


@click.group(cls=DefaultGroup, default="preview", takes_word=True, subcommand_metavar="MODEL | explain ID")
def match() -> None:
    """Show which node would take a job for MODEL, and why. Nothing runs.

    \b
    Example:
      sparewatt match smollm2-135m --prompt-tokens 2000
      sparewatt match explain match_5k0wq2
    """


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
@click.option("--policy", type=click.Choice(RANKINGS), default="balanced", show_default=True, help="How to rank.")
@click.option("--route", metavar="QUERY", help="Who may serve it, e.g. 'region=EU max_price<=0.3 sort=price'.")
@json_option
@network_options
def preview(
    client: ApiClient, *, model: str, prompt_tokens: int, max_tokens: int, policy: str, route: str | None, as_json: bool
) -> None:
    """Show which node would take a job for MODEL, and why. Nothing runs.

    \b
    Example:
      sparewatt match smollm2-135m --prompt-tokens 2000 --max-tokens 500
      sparewatt match smollm2-135m --route 'region=EU gpu_class>=a100'
    """
    job = {"model": model, "prompt_tokens": prompt_tokens, "max_tokens": max_tokens, "policy": policy}
    reply = client.post("/match", job, headers=_route_header(route))
    explanation = reply.parse(Explanation)
    if as_json:
        output.print_json(reply.json())
    else:
        _print_explanation(explanation)
    if explanation.chosen is None:
        raise click.exceptions.Exit(ExitCode.NO_MATCH)


def _route_header(route: str | None) -> dict[str, str]:
    """A header holds printable ASCII; so does every word of the vocabulary."""
    if not route:
        return {}
    if not (route.isascii() and route.isprintable()):
        raise click.UsageError("--route holds a character that no name or number has. Write plain ASCII in one line.")
    return {HEADER: route}


@match.command("explain")
@click.argument("match_id", metavar="ID")
@json_option
@network_options
def explain(client: ApiClient, *, match_id: str, as_json: bool) -> None:
    """Explain a past match: who was ranked how, who was tried, what came of it.

    \b
    Example:
      sparewatt match explain match_5k0wq2
    """
    reply = client.get(path_of("matches", match_id))
    if as_json:
        output.print_json(reply.json())
    else:
        _print_explanation(reply.parse(Explanation))


def _print_explanation(told: Explanation) -> None:
    output.print_facts(_facts(told))
    if told.funnel:
        _print_funnel(told)
    if told.rejected:
        _print_rejected(told.rejected)
    if told.ranked:
        _print_ranked(told.ranked, chosen=told.attempts[0].node if told.moves and told.attempts else told.chosen)
    for move in told.moves:
        _print_move(move)
    if told.attempts:
        _print_attempts(told.attempts, is_streamed=told.streamed)
    _print_verdict(told)


def _facts(told: Explanation) -> list[tuple[str, output.Cell | str]]:
    job = told.job or Job()
    tokens_in, tokens_out = output.format_count(job.prompt_tokens), output.format_count(job.output_tokens)
    facts: list[tuple[str, output.Cell | str]] = [
        ("Model", told.model),
        ("Policy", told.policy),
        ("Job", f"{tokens_in} tokens in, {tokens_out} out, needs {output.format_bytes(job.vram_needed_bytes)}"),
    ]
    if told.match_id:
        facts.insert(0, ("Match", told.match_id))
    if not told.dry_run:
        facts += [("Outcome", told.outcome), ("When", output.ago(told.created_at, now_s=time.time()))]
    return facts


def _print_funnel(told: Explanation) -> None:
    output.print_title("Filters")
    rows: list[output.Row] = [["all nodes", "", str(told.candidates_total), _bar(told.candidates_total, told)]]
    rows += [[step.filter, str(step.dropped), str(step.left), _bar(step.left, told)] for step in told.funnel]
    columns = [*output.left("FILTER"), *output.right("DROPPED", "LEFT"), *output.left("")]
    output.print_table(columns, rows, may_drop=("",))


def _bar(n: int, told: Explanation) -> str:
    """At least one mark for at least one node."""
    if n <= 0:
        return ""
    return "█" * max(1, round(_BAR_CHARS * n / max(told.candidates_total, n)))


def _print_rejected(rejected: Sequence[Rejected]) -> None:
    output.print_title("Not considered")
    rows = [
        [output.node_label(node.node, node.name), node.reason.replace("_", " "), node.detail or ""]
        for node in rejected[:_REJECTED_SHOWN]
    ]
    output.print_table([*output.left("NODE", "REASON"), *output.prose("DETAIL")], rows, may_drop=("DETAIL",))
    if len(rejected) > _REJECTED_SHOWN:
        print(f"and {len(rejected) - _REJECTED_SHOWN} more; --json prints all")


def _print_move(move: Move) -> None:
    if move.candidates:
        after = f"after {move.after_tokens} tokens" if move.after_tokens else "before the first token"
        _print_ranked(move.candidates, chosen=move.chosen, who=f"Candidates to go on {after}")


def _print_ranked(ranked: Sequence[Candidate], *, chosen: str | None, who: str = "Candidates") -> None:
    in_ms = ranked[0].cost_s is not None
    shown, idle = _part_names(ranked)
    output.print_title(f"{who}, expected cost in ms, least first" if in_ms else f"{who}, score, best first")
    headers = [_PART_HEADERS.get(name, name.replace("_", " ").upper()) for name in shown]
    columns = [*output.left("", "NODE", "REGION"), *output.right("COST" if in_ms else "SCORE", *headers, "USD")]
    rows = [_candidate_row(node, shown=shown, chosen=chosen) for node in ranked]
    output.print_table(columns, rows, may_drop=["REGION", "USD", *reversed(headers)])
    output.print_lines(_part_notes(shown, idle))


def _part_notes(shown: Sequence[str], idle: Sequence[str]) -> list[str]:
    """What the headers alone do not say."""
    zeros = [f"Zero for all: {', '.join(idle)}"] if idle else []
    return zeros + [note for name, note in _PART_NOTES.items() if name in shown]


def _part_names(ranked: Sequence[Candidate]) -> tuple[list[str], list[str]]:
    """The parts that differ from zero for somebody, and those that do not; both in the order they came."""
    names = list(dict.fromkeys(name for node in ranked for name in node.parts))
    shown = [name for name in names if any(node.parts.get(name) for node in ranked)]
    return shown, [name for name in names if name not in shown]


def _candidate_row(node: Candidate, *, shown: Sequence[str], chosen: str | None) -> output.Row:
    is_chosen = node.node == chosen
    texts = [
        "→" if is_chosen else "",
        output.node_label(node.node, node.name),
        node.region or output.UNKNOWN,
        _number(node, node.score if node.cost_s is None else node.cost_s),
        *(_number(node, node.parts.get(name)) for name in shown),
        output.format_usd(node.price_usd),
    ]
    return [output.Cell(text, output.CHOSEN_STYLE if is_chosen else "") for text in texts]


def _number(node: Candidate, value: float | None) -> str:
    """Seconds of a cost as milliseconds; the numbers of a score as they are."""
    if value is None:
        return output.UNKNOWN
    return f"{value:.3f}" if node.cost_s is None else output.plain_ms(value * 1000)


def _print_attempts(attempts: Sequence[Attempt], *, is_streamed: bool) -> None:
    bars = "░ waiting, █ answering" if is_streamed else "░ waiting and answering"
    output.print_title(f"Attempts, in ms since the request came ({bars})")
    end_ms = max((_last_ms(attempt) for attempt in attempts), default=0.0)
    columns = [
        *output.left("NODE", "OUTCOME"),
        *output.right("START", "FIRST", "END", "TOKENS"),
        *output.left("TIME LINE"),
        *output.prose("REASON"),
    ]
    may_drop = ("TIME LINE", "TOKENS", "START", "END", "FIRST", "REASON")
    output.print_table(columns, [_attempt_row(attempt, end_ms=end_ms) for attempt in attempts], may_drop=may_drop)
    output.print_lines(seams(attempts))
    if not is_streamed and attempts[-1].outcome == "done":
        output.print_lines(["The answer came in one piece: nobody saw its first token."])


def seams(attempts: Sequence[Attempt]) -> list[str]:
    """Where one node went on with what another had begun."""
    return [
        f"{output.node_label(attempt.node, attempt.name)} went on after {at.tokens} tokens ({at.chars} characters)"
        for attempt in attempts
        if (at := attempt.continued_from) is not None
    ]


def _attempt_row(attempt: Attempt, *, end_ms: float) -> list[str]:
    return [
        output.node_label(attempt.node, attempt.name),
        attempt.outcome.replace("_", " "),
        output.plain_ms(attempt.started_ms),
        output.plain_ms(attempt.first_token_ms),
        output.plain_ms(attempt.ended_ms),
        str(attempt.tokens),
        time_line(attempt, end_ms=end_ms),
        attempt.reason or "",
    ]


def _last_ms(attempt: Attempt) -> float:
    return max(attempt.started_ms, attempt.first_token_ms or 0.0, attempt.ended_ms or 0.0)


def time_line(attempt: Attempt, *, end_ms: float) -> str:
    """One attempt as a bar: blank before it starts, light while it waits, solid while tokens come."""
    scale = _BAR_CHARS / end_ms if end_ms > 0 else 0.0
    last_ms = _last_ms(attempt)
    start = min(round(attempt.started_ms * scale), _BAR_CHARS - 1)
    end = max(round(last_ms * scale), start + 1)
    first = end if attempt.first_token_ms is None else round(attempt.first_token_ms * scale)
    waiting = max(0, min(first, end) - start)
    return (" " * start + "░" * waiting + "█" * (end - start - waiting)).ljust(_BAR_CHARS)


def _print_verdict(told: Explanation) -> None:
    print()
    output.print_lines([_verdict(told)])
    if told.chosen is None and told.nearest_relaxations:
        print("What would help most:")
        output.print_lines(f"  - {relaxation}" for relaxation in told.nearest_relaxations)


def _verdict(told: Explanation) -> str:
    """One sentence on where the job goes, or went, or why nowhere."""
    if told.chosen is None:
        return told.why_nobody or ("No node can take this job." if told.dry_run else "No node took this job.")
    if told.outcome == "failed":
        broke_off = any(attempt.tokens for attempt in told.attempts)
        return "Nobody answered to the end." if broke_off else "Nobody answered."
    return f"{'Would go' if told.dry_run else 'Went'} to {_name_of(told, told.chosen)}."


def _name_of(told: Explanation, node: str) -> str:
    known: list[Candidate | Attempt] = [*told.ranked, *told.attempts]
    names = [one.name for one in known if one.node == node]
    return f"{names[0]} ({node})" if names and names[0] else node
