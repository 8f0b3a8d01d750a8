"""Verdicts of checked answers on the command line: shown, replayed on this machine, and tried again."""

from __future__ import annotations

import time
from typing import Any

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient, path_of
from sparewatt.cli.errors import CliError
from sparewatt.cli.output import left, prose, right
from sparewatt.core.money import format_usd
from sparewatt.protocol.api.checks import CheckVerdict, NodeChecks
from sparewatt.trust.checks.comparison import digest_of
from sparewatt.trust.checks.panel import NodeVerdict, PanelAnswer, confirm, judge
from sparewatt.trust.checks.probe_prompts import draw_probe

VERDICT_PREFIX = "verdict_"
SHOWN = 20


def print_checks(checks: NodeChecks) -> None:
    """Where a node stands, in words, then its latest verdicts with both answers' first difference."""
    withheld = checks.withheld_nano if isinstance(checks.withheld_nano, int) else None
    promo = checks.withheld_promo_nano if isinstance(checks.withheld_promo_nano, int) else 0
    money = [] if withheld is None else [("Withheld", f"${format_usd(withheld + promo)}")]
    facts = [("Node", checks.name), ("ID", checks.node), ("Checks", checks.state), *money]
    output.print_facts([*facts, ("Checked", f"{checks.checked_share:.1%} of its next jobs")])
    print()
    output.print_lines(checks.sentences)
    if checks.verdicts:
        output.print_title("Verdicts, the latest first")
        columns = [
            left("verdict", lambda verdict: verdict.id),
            left("when", lambda verdict: time.strftime("%Y-%m-%d %H:%M", time.gmtime(verdict.at_unix_s))),
            left("kind", lambda verdict: verdict.kind),
            left("result", lambda verdict: verdict.result),
            right("agreed on", lambda verdict: "-" if verdict.agreed is None else f"{verdict.agreed} pieces"),
            prose("first difference", _difference),
        ]
        output.print_table(columns, checks.verdicts[:SHOWN])


def _difference(verdict: CheckVerdict) -> str:
    if verdict.difference is None:
        return "none" if not verdict.differs else "not kept: a customer's request"
    mine, other = verdict.difference
    return f"it wrote {mine!r}, {(verdict.witness or '')[:10]}… {other!r}"


def replay_verdict(client: ApiClient, verdict_id: str, *, as_json: bool) -> None:
    """Compute a verdict again from its recorded inputs, by the same rules, and compare."""
    verdict = client.get(path_of("verdicts", verdict_id)).parse(CheckVerdict)
    differences, found = replayed(verdict)
    if as_json:
        output.print_json({"verdict": verdict.id, "result": found, "differences": differences})
    elif not differences:
        output.print_lines([f"The verdict {verdict.id} holds: its inputs give {found!r} again."])
    if differences:
        raise CliError(
            f"The verdict {verdict.id} does not hold: {', '.join(differences)}.",
            next_step="Keep this output. The node's owner can ask for a re-trial: sparewatt trust retry VERDICT.",
        )


def replayed(verdict: CheckVerdict) -> tuple[list[str], str]:
    """What differs from the published verdict, and the result computed here. Raises CliError without texts."""
    if verdict.seed is None or verdict.limits is None:
        raise CliError(
            "This verdict is about a customer's request, of which no text is kept: it cannot be replayed.",
            next_step="Verdicts of kind 'probe' can.",
        )
    differences = []
    prompt = draw_probe(bytes.fromhex(verdict.seed), limits=verdict.limits)
    if list(prompt.messages) != verdict.prompt:
        differences.append("the seed gives another prompt")
    wrong = [each.node for each in verdict.answers if digest_of(each.text or ()) != each.digest]
    differences += [f"the answer of {node} has another digest" for node in wrong]
    own = next((each for each in judged(verdict) if each.node == verdict.node), None)
    result = own.result.value if own is not None else "undecided"
    is_same = result == verdict.result or verdict.is_drift or verdict.retrial_of is not None
    if not is_same:
        differences.append(f"the answers give {result!r}, published is {verdict.result!r}")
    return differences, result


def judged(verdict: CheckVerdict) -> tuple[NodeVerdict, ...]:
    """The panel's verdicts, by the shipped rule; with the prompt before, if there was one."""
    found = judge(_answers(verdict.answers), kind=verdict.kind, hazard=verdict.hazard)
    if not verdict.before:
        return found
    return confirm(judge(_answers(verdict.before), kind=verdict.kind, hazard=verdict.hazard), found)


def _answers(answers: list[Any]) -> list[PanelAnswer]:
    return [PanelAnswer(each.node, each.owner, each.trusted, tuple(each.text or ())) for each in answers]
