import type { ReactNode } from "react";
import type { LeaseMatch, MatchBid, MatchScore } from "@/api/schema";
import { percent, usd, usdAlike } from "@/lib/format";
import { hasDistance, SCORE_TERMS, scoreTerms, scoreUsd, termColour, termLabel, type ScoreTerm } from "./bidScore";
import { ProviderName } from "./names";
import { isRunning } from "./phases";
import { reasonText } from "./reasons";

type ScoredBid = MatchBid & { score: MatchScore };

/** The eligible bids, best first, each as a stacked bar of its score; below them the others, with what was against them. */
export function BidLadder({ match }: { match: LeaseMatch }) {
  const { bids, certificate, phase } = match;
  const scored = bids.filter((bid): bid is ScoredBid => bid.score !== null).sort((a, b) => (a.rank ?? 0) - (b.rank ?? 0));
  const others = bids.filter(({ score }) => score === null);
  const scoreMax = Math.max(1e-9, ...scored.map(({ score }) => scoreUsd(score)));
  const money = usdAlike(scored.map(({ score }) => scoreTerms(score).price));
  if (!bids.length) return <p className="text-muted">{isRunning(phase.name) ? "No bid has come in yet." : "No bid came in."}</p>;
  return (
    <div className="space-y-3">
      {scored.length > 0 && (
        <p className="small text-muted">
          The lowest score wins. It is the price, with what the distance counts, divided by the chance that the provider does not fail: its uptime times its reputation.
        </p>
      )}
      <ol className="space-y-2" data-testid="bids">
        {scored.map((bid) => (
          <ScoredBidRow key={bid.provider} bid={bid} scoreMax={scoreMax} payUsd={payOf(bid, certificate)} money={money} />
        ))}
        {others.map((bid) => (
          <li key={bid.bid_id ?? bid.provider} className="flex flex-wrap items-baseline justify-between gap-2 rounded-md border border-line p-3">
            <ProviderName of={bid.provider} />
            <span className="small text-muted">
              {bid.price_usd !== null && <span className="num">{usd(bid.price_usd)}/h · </span>}
              {bid.reason ? reasonText(bid.reason) : bid.state === "committed" || bid.state === "certified" ? "sealed" : bid.state}
            </span>
          </li>
        ))}
      </ol>
    </div>
  );
}

function payOf({ provider }: MatchBid, certificate: LeaseMatch["certificate"]): string | null {
  return certificate?.candidates.find((one) => one.provider === provider)?.pay_usd ?? null;
}

interface RowProps {
  bid: ScoredBid;
  scoreMax: number;
  payUsd: string | null;
  money: (amount: number) => string;
}

function ScoredBidRow({ bid, scoreMax, payUsd, money }: RowProps) {
  const { score } = bid;
  const terms = scoreTerms(score);
  const isWinner = bid.state === "won";
  const labels = SCORE_TERMS.map((term) => `${termLabel(term)}: ${money(terms[term])}`);
  return (
    <li className={`rounded-md border p-3 ${isWinner ? "border-volt" : "border-line"}`}>
      <div className="flex flex-wrap items-baseline justify-between gap-2">
        <span>
          <span className="num text-muted">{bid.rank ?? "–"}. </span>
          <ProviderName of={bid.provider} />
          {isWinner && <span className="font-semibold text-volt"> won</span>}
          {bid.state === "standby" && <span className="text-muted"> stand-in</span>}
        </span>
        {payUsd !== null && (
          <span className={isWinner ? "text-volt" : "text-muted"}>
            {isWinner ? "is paid" : "would be paid"} <span className="num">{usd(payUsd)}/h</span>
          </span>
        )}
      </div>
      <div className="mt-2 flex h-3 overflow-hidden rounded-md bg-line" role="img" aria-label={labels.join(", ")}>
        {SCORE_TERMS.map((term, at) => (
          <span key={term} title={labels[at]} style={{ width: `${(terms[term] / scoreMax) * 100}%`, background: termColour(term) }} />
        ))}
      </div>
      <dl className="mt-2 grid grid-cols-2 gap-x-4 gap-y-2 sm:grid-cols-[1fr_1fr_1.9fr_1fr]">
        <Term of="price" value={money(terms.price)} note="an hour, asked" />
        <Term of="latency" value={money(terms.latency)} note={hasDistance(score) ? `${score.rtt_ms} ms away` : "no place asked for"} />
        <Term of="risk" value={money(terms.risk)} note={`uptime ${percent(score.uptime_ppm / 1e6)}, reputation ${percent(score.reputation_ppm / 1e6)}`} />
        <Term value={money(scoreUsd(score))} note="the three added up" />
      </dl>
      {isWinner && payUsd !== null && Number(payUsd) > terms.price && (
        <p className="small mt-2 text-muted">
          It is paid more than it asked: the highest price with which it would still have won, within the order's highest price. So nobody gains by asking more than it needs.
        </p>
      )}
    </li>
  );
}

/** A term of the score in its colour; without one, the score. */
function Term({ of: term, value, note }: { of?: ScoreTerm; value: ReactNode; note: string }) {
  return (
    <div className="min-w-0">
      <dt className="small flex items-center gap-1.5 text-muted">
        {term && <span aria-hidden className="inline-block h-2.5 w-2.5 shrink-0 rounded-md" style={{ background: termColour(term) }} />}
        {term ? termLabel(term) : "score"}
      </dt>
      <dd>
        <span className={`num ${term ? "" : "font-semibold"}`}>{value}</span>
        <span className="small block text-muted">{note}</span>
      </dd>
    </div>
  );
}
