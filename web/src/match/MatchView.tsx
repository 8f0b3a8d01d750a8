import type { Explanation } from "@/api/types";
import { count, exact, gb } from "@/lib/format";
import { Section } from "@/parts/Page";
import { Fact, Facts } from "./Facts";
import { Funnel } from "./Funnel";
import { Moves } from "./Moves";
import { Outcome } from "./Outcome";
import { readable } from "./relaxation";
import { Reweigh } from "./Reweigh";
import { Timeline } from "./Timeline";

/** Why this node, and why not the others. */
export function MatchView({ match }: { match: Explanation }) {
  const { job } = match;
  return (
    <>
      <Facts>
        <Fact name="Outcome">
          <Outcome of={match.outcome} />
        </Fact>
        <Fact name="Model">{match.model}</Fact>
        <Fact name="Tier">{match.policy}</Fact>
        <Fact name="When">{exact(match.created_at)}</Fact>
        <Fact name="Prompt, estimated">{count(job.prompt_tokens)} tokens</Fact>
        <Fact name="Answer, expected">{count(job.output_tokens)} tokens</Fact>
        <Fact name="Memory needed">{job.vram_needed_bytes === null ? "–" : gb(job.vram_needed_bytes)}</Fact>
        <Fact name="Nodes there were">{count(match.candidates_total)}</Fact>
      </Facts>
      <Section title="Who could have had it">
        <Funnel match={match} />
        {match.why_nobody && <p>{match.why_nobody}</p>}
        {match.nearest_relaxations.length > 0 && (
          <ul className="small list-disc pl-5 text-muted">
            {match.nearest_relaxations.map((line) => (
              <li key={line}>{readable(line)}</li>
            ))}
          </ul>
        )}
      </Section>
      {match.ranked.length > 0 && (
        <Section title="What each would have cost">
          <Reweigh key={match.match_id} match={match} />
        </Section>
      )}
      <Moves match={match} />
      {match.match_id && (
        <Section title="What happened">
          <Timeline attempts={match.attempts} isStreamed={match.streamed ?? true} />
        </Section>
      )}
      {match.rejected.length > 0 && (
        <Section title="Turned away">
          <ul className="small space-y-1">
            {match.rejected.slice(0, 20).map((one) => (
              <li key={one.node}>
                <span>{one.name ?? `${one.node.slice(0, 10)}…`}</span> <span className="text-muted">{one.detail}</span>
              </li>
            ))}
          </ul>
        </Section>
      )}
    </>
  );
}
