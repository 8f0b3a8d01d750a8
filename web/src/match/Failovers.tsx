import type { MatchExplanation, MatchReassignment } from "@/api/schema";
import { Section } from "@/components/Page";
import { nodeLabel, plural } from "@/lib/format";
import { CandidateBars } from "./CandidateBars";

/** The candidates of each failover: which nodes were left when a node had failed, and which one took over. */
export function Failovers({ match }: { match: MatchExplanation }) {
  return match.moves
    .filter((move) => move.candidates.length > 0)
    .map((move) => (
      <Section key={move.attempt} title={titleOf(move, match)}>
        <div data-testid="move">
          <CandidateBars candidates={move.candidates} chosen={move.chosen} />
        </div>
      </Section>
    ));
}

function titleOf({ attempt, after_tokens }: MatchReassignment, match: MatchExplanation): string {
  const failed = match.attempts[attempt - 1];
  const when = after_tokens ? `after ${plural(after_tokens, "token")}` : "before the first token";
  return `Candidates left when ${failed ? nodeLabel(failed) : "the first node"} failed, ${when}`;
}
