import { Link } from "wouter";
import type { RankedNode } from "@/api/schema";
import { digits, ms, nodeLabel, seconds, usd } from "@/lib/format";
import { partColour, partLabel, partNames, weightedCost, weightedPart, type Weights } from "./costParts";

interface Props {
  candidates: RankedNode[];
  chosen: string | null;
  weights?: Weights;
}

/** The cost of each candidate as a stacked bar of its parts. */
export function CandidateBars({ candidates, chosen, weights = {} }: Props) {
  const parts = partNames(candidates);
  const costMax = Math.max(1e-9, ...candidates.map((one) => Math.abs(weightedCost(one, weights))));
  return (
    <div className="space-y-3">
      <ul className="small flex flex-wrap gap-x-4 gap-y-1 text-muted" aria-label="Parts of the cost">
        {parts.map((part) => (
          <li key={part} className="flex items-center gap-1.5">
            <span aria-hidden className="inline-block h-2.5 w-2.5 rounded-md" style={{ background: partColour(part) }} />
            {partLabel(part)}
          </li>
        ))}
      </ul>
      <ol className="space-y-2" data-testid="scores">
        {candidates.map((one) => (
          <CandidateBar key={one.node} candidate={one} isChosen={one.node === chosen} parts={parts} costMax={costMax} weights={weights} />
        ))}
      </ol>
    </div>
  );
}

interface BarProps {
  candidate: RankedNode;
  isChosen: boolean;
  parts: string[];
  costMax: number;
  weights: Weights;
}

function CandidateBar({ candidate, isChosen, parts, costMax, weights }: BarProps) {
  const format = candidate.cost_s === null ? digits : seconds;
  const labels = parts.map((part) => `${partLabel(part)}: ${format(weightedPart(candidate, part, weights))}`);
  return (
    <li className={`rounded-md border p-2 ${isChosen ? "border-volt" : "border-line"}`}>
      <div className="flex flex-wrap items-baseline justify-between gap-2">
        <span>
          <Link href={`/nodes/${candidate.node}`} className="hover:underline">
            {nodeLabel(candidate)}
          </Link>
          <span className="small text-muted"> {candidate.region}</span>
          {isChosen && <span className="small font-semibold text-volt"> chosen</span>}
        </span>
        <span className="num small">
          {format(weightedCost(candidate, weights))}
          <span className="text-muted">
            {" "}
            · first token in {ms(candidate.predicted_ttft_s * 1000)} · {usd(candidate.price_usd)}
          </span>
        </span>
      </div>
      <div className="mt-1.5 flex h-3 overflow-hidden rounded-md bg-line" role="img" aria-label={labels.join(", ")}>
        {parts.map((part, at) => {
          const share = Math.abs(weightedPart(candidate, part, weights)) / costMax;
          return <span key={part} title={labels[at]} style={{ width: `${share * 100}%`, background: partColour(part) }} />;
        })}
      </div>
    </li>
  );
}
