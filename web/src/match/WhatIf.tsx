import { useState } from "react";
import type { MatchExplanation } from "@/api/schema";
import { Button } from "@/components/Button";
import { digits, nodeLabel } from "@/lib/format";
import { CandidateBars } from "./CandidateBars";
import { partLabel, partNames, rankCandidates, type Weights } from "./costParts";

/** The costs of all candidates, with sliders that show who would have won if a part had weighed more or less. */
export function WhatIf({ match }: { match: MatchExplanation }) {
  const [weights, setWeights] = useState<Weights>({});
  const candidates = rankCandidates(match.ranked, weights);
  // A node on trial is first whatever it costs: then the cheapest is what the sliders are compared with.
  const first = match.is_trial ? rankCandidates(match.ranked, {})[0] : match.ranked[0];
  const winner = candidates[0];
  const parts = partNames(match.ranked).filter((part) => match.ranked.some((one) => one.parts[part]));
  const isChanged = Object.values(weights).some((weight) => weight !== 1);
  return (
    <div className="space-y-4">
      <CandidateBars candidates={candidates} chosen={match.attempts[0]?.node ?? match.chosen} weights={weights} />
      {match.is_trial && (
        <p className="small text-muted" data-testid="trial">
          The chosen node was new to the network: it got this job so that its speed could be timed, not because it cost least.
        </p>
      )}
      <details className="card p-3">
        <summary>What if a part had counted more, or less?</summary>
        <p className="small mt-2 text-muted">
          The sliders weigh the recorded parts. The gateway recorded the {match.ranked.length} best candidates only.
        </p>
        <div className="mt-3 grid gap-x-6 gap-y-2 sm:grid-cols-2">
          {parts.map((part) => (
            <label key={part} className="small grid grid-cols-[9rem_1fr_3rem] items-center gap-2">
              {partLabel(part)}
              <input
                type="range"
                min={0}
                max={5}
                step={0.25}
                value={weights[part] ?? 1}
                onChange={(event) => setWeights({ ...weights, [part]: Number(event.target.value) })}
                className="accent-volt"
              />
              <output className="num text-right">×{digits(weights[part] ?? 1)}</output>
            </label>
          ))}
        </div>
        <div className="mt-3 flex flex-wrap items-center justify-between gap-2">
          <p role="status" data-testid="what-if">
            {!winner || winner.node === first?.node ? "The same node would have won." : `${nodeLabel(winner)} would have won.`}
          </p>
          <Button disabled={!isChanged} onClick={() => setWeights({})}>
            Reset
          </Button>
        </div>
      </details>
    </div>
  );
}
