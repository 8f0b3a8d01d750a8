import { Link } from "wouter";
import type { Candidate } from "@/api/types";
import { digits, ms, seconds, usd } from "@/lib/format";
import { colourOf, TERM_WORDS, termsOf, weighed, type Weights } from "./terms";

interface Props {
  candidates: Candidate[];
  chosen: string | null;
  weights: Weights;
}

/** What each candidate would cost, term by term. */
export function ScoreBars({ candidates, chosen, weights }: Props) {
  const terms = termsOf(candidates);
  const top = Math.max(1e-9, ...candidates.map((one) => Math.abs(weighed(one, weights))));
  return (
    <div className="space-y-3">
      <ul className="small flex flex-wrap gap-x-4 gap-y-1 text-muted" aria-label="Terms">
        {terms.map((term) => (
          <li key={term} className="flex items-center gap-1.5">
            <span aria-hidden className="inline-block h-2.5 w-2.5 rounded-md" style={{ background: colourOf(term) }} />
            {TERM_WORDS[term] ?? term}
          </li>
        ))}
      </ul>
      <ol className="space-y-2" data-testid="scores">
        {candidates.map((one) => (
          <Row key={one.node} one={one} isChosen={one.node === chosen} terms={terms} top={top} weights={weights} />
        ))}
      </ol>
    </div>
  );
}

function Row({ one, isChosen, terms, top, weights }: { one: Candidate; isChosen: boolean; terms: string[]; top: number; weights: Weights }) {
  const inSeconds = one.cost_s !== null;
  const unit = (value: number) => (inSeconds ? seconds(value) : digits(value));
  const spoken = terms.map((term) => `${TERM_WORDS[term] ?? term} ${unit((one.parts[term] ?? 0) * (weights[term] ?? 1))}`);
  return (
    <li className={`rounded-md border p-2 ${isChosen ? "border-volt" : "border-line"}`}>
      <div className="flex flex-wrap items-baseline justify-between gap-2">
        <span>
          <Link href={`/nodes/${one.node}`} className="hover:underline">
            {one.name ?? `${one.node.slice(0, 10)}…`}
          </Link>
          <span className="small text-muted"> {one.region}</span>
          {isChosen && <span className="small font-semibold text-volt"> chosen</span>}
        </span>
        <span className="num small">
          {unit(weighed(one, weights))}
          <span className="text-muted">
            {" "}
            · first token in {ms(one.predicted_ttft_s * 1000)} · {usd(one.price_usd)}
          </span>
        </span>
      </div>
      <div className="mt-1.5 flex h-3 overflow-hidden rounded-md bg-line" role="img" aria-label={spoken.join(", ")}>
        {terms.map((term) => {
          const part = Math.abs((one.parts[term] ?? 0) * (weights[term] ?? 1));
          return (
            <span
              key={term}
              title={`${TERM_WORDS[term] ?? term}: ${unit(part)}`}
              style={{ width: `${(part / top) * 100}%`, background: colourOf(term) }}
            />
          );
        })}
      </div>
    </li>
  );
}
