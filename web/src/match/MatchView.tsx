import type { MatchExplanation } from "@/api/schema";
import { Section } from "@/components/Page";
import { count, exactTime, gb, nodeLabel } from "@/lib/format";
import { Detail, Details } from "./Details";
import { Failovers } from "./Failovers";
import { Funnel } from "./Funnel";
import { Outcome } from "./Outcome";
import { formatRelaxation } from "./relaxation";
import { Timeline } from "./Timeline";
import { WhatIf } from "./WhatIf";

const REJECTED_MAX = 20;

/** One match in full: why this node, and why not the others. */
export function MatchView({ match }: { match: MatchExplanation }) {
  const { job } = match;
  return (
    <>
      <Details>
        <Detail name="Outcome">
          <Outcome of={match.outcome} />
        </Detail>
        <Detail name="Model">{match.model}</Detail>
        <Detail name="Ranking">{match.policy}</Detail>
        <Detail name="Time">{exactTime(match.created_at)}</Detail>
        <Detail name="Prompt, estimated">{count(job.prompt_tokens)} tokens</Detail>
        <Detail name="Answer, expected">{count(job.output_tokens)} tokens</Detail>
        <Detail name="Memory needed">{job.vram_needed_bytes === null ? "–" : gb(job.vram_needed_bytes)}</Detail>
        <Detail name="Nodes considered">{count(match.candidates_total)}</Detail>
      </Details>
      <Section title="Which nodes were eligible">
        <Funnel match={match} />
        {match.nearest_relaxations.length > 0 && (
          <ul className="small list-disc pl-5 text-muted">
            {match.nearest_relaxations.map((line) => (
              <li key={line}>{formatRelaxation(line)}</li>
            ))}
          </ul>
        )}
      </Section>
      {match.ranked.length > 0 && (
        <Section title="What each candidate would have cost">
          <WhatIf key={match.match_id} match={match} />
        </Section>
      )}
      <Failovers match={match} />
      <Section title="Attempts">
        <Timeline attempts={match.attempts} isStreamed={match.streamed} />
      </Section>
      {match.rejected.length > 0 && (
        <Section title="Rejected nodes">
          <ul className="small space-y-1">
            {match.rejected.slice(0, REJECTED_MAX).map((one) => (
              <li key={one.node}>
                {nodeLabel(one)} <span className="text-muted">{one.detail}</span>
              </li>
            ))}
          </ul>
        </Section>
      )}
    </>
  );
}
