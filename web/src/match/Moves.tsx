import type { Explanation, Move } from "@/api/types";
import { plural } from "@/lib/format";
import { Section } from "@/parts/Page";
import { ScoreBars } from "./ScoreBars";

/** Later choices: among whom the next node was chosen when the one before had failed. */
export function Moves({ match }: { match: Explanation }) {
  const told = (match.moves ?? []).filter((move) => move.candidates.length > 0);
  return told.map((move) => (
    <Section key={move.attempt} title={titleOf(move, match)}>
      <div data-testid="move">
        <ScoreBars candidates={move.candidates} chosen={move.chosen} weights={{}} />
      </div>
    </Section>
  ));
}

function titleOf(move: Move, match: Explanation): string {
  const before = match.attempts[move.attempt - 1];
  const who = before ? (before.name ?? `${before.node.slice(0, 10)}…`) : "the node before";
  return `Who was left when ${who} failed, ${move.after_tokens ? `after ${plural(move.after_tokens, "token")}` : "before the first token"}`;
}
