import { useState } from "react";
import type { Explanation } from "@/api/types";
import { digits } from "@/lib/format";
import { Button } from "@/parts/Button";
import { ScoreBars } from "./ScoreBars";
import { ranked, TERM_WORDS, termsOf, type Weights } from "./terms";

/** The scores, and what would have won if a term had counted more or less. */
export function Reweigh({ match }: { match: Explanation }) {
  const [weights, setWeights] = useState<Weights>({});
  const candidates = ranked(match.ranked, weights);
  const first = match.ranked[0];
  const winner = candidates[0];
  const isSame = !first || winner?.node === first.node;
  const terms = termsOf(match.ranked).filter((term) => match.ranked.some((one) => one.parts[term]));
  const isChanged = Object.values(weights).some((weight) => weight !== 1);
  return (
    <div className="space-y-4">
      <ScoreBars candidates={candidates} chosen={match.attempts[0]?.node ?? match.chosen} weights={weights} />
      <details className="card p-3">
        <summary>What if a term had counted more, or less?</summary>
        <p className="small mt-2 text-muted">
          The sliders weigh the terms as they were recorded. Only the {match.ranked.length} best candidates were kept.
        </p>
        <div className="mt-3 grid gap-x-6 gap-y-2 sm:grid-cols-2">
          {terms.map((term) => (
            <label key={term} className="small grid grid-cols-[9rem_1fr_3rem] items-center gap-2">
              {TERM_WORDS[term] ?? term}
              <input
                type="range"
                min={0}
                max={5}
                step={0.25}
                value={weights[term] ?? 1}
                onChange={(event) => setWeights({ ...weights, [term]: Number(event.target.value) })}
                className="accent-volt"
              />
              <output className="num text-right">×{digits(weights[term] ?? 1)}</output>
            </label>
          ))}
        </div>
        <div className="mt-3 flex flex-wrap items-center justify-between gap-2">
          <p role="status" data-testid="what-if">
            {isSame ? "The same node would have won." : `${winner?.name ?? winner?.node ?? "Another node"} would have won.`}
          </p>
          <Button disabled={!isChanged} onClick={() => setWeights({})}>
            As recorded
          </Button>
        </div>
      </details>
    </div>
  );
}
