import { useMemo } from "react";
import type { LeaseMatch } from "@/api/schema";
import { DataTable } from "@/components/DataTable";
import { EmptyState } from "@/components/Notice";
import { Section } from "@/components/Page";
import { ms } from "@/lib/format";
import { BidLadder } from "./BidLadder";
import { CertificateCard } from "./CertificateCard";
import { CheckYourself } from "./CheckYourself";
import { ProviderName, ValidatorName } from "./names";
import { NoWinner } from "./NoWinner";
import { PhaseTimeline } from "./PhaseTimeline";
import { isRunning } from "./phases";
import { reasonText } from "./reasons";
import { groupRefusals } from "./refusals";
import { SideBySide } from "./SideBySide";

/** One attempt in full: phases, bids, refusals, votes and certificate, with who said what. */
export function AuctionView({ match, seenMs }: { match: LeaseMatch; seenMs: number }) {
  const { phase, certificate } = match;
  const hasNoWinner = !isRunning(phase.name) && !certificate?.candidates.length;
  return (
    <>
      <Section title="Auction">
        <PhaseTimeline match={match} seenMs={seenMs} />
      </Section>
      {hasNoWinner && <NoWinner match={match} />}
      {(match.bids.length > 0 || !hasNoWinner) && (
        <Section title="Bids">
          <BidLadder match={match} />
        </Section>
      )}
      {match.declines.length > 0 && (
        <Section title="Who declined">
          <ul className="space-y-1" data-testid="declines">
            {match.declines.map(({ provider, reason }) => (
              <li key={provider}>
                <ProviderName of={provider} />{" "}
                <span className="small text-muted" title={reason}>
                  {reasonText(reason)}
                </span>
              </li>
            ))}
          </ul>
        </Section>
      )}
      {match.refusals.length > 0 && (
        <Section title="What validators refused">
          <Refusals match={match} />
        </Section>
      )}
      <Section title="What each validator signed, side by side">
        <SideBySide match={match} />
      </Section>
      <Section title="Certificate">
        {certificate ? (
          <CertificateCard certificate={certificate} match={match} />
        ) : (
          <p className="text-muted">{isRunning(phase.name) ? "Not yet: it needs votes of more than two thirds of the stake." : "This attempt ended without one."}</p>
        )}
      </Section>
      <Section title="Check it yourself">
        <CheckYourself match={match} />
      </Section>
    </>
  );
}

function Refusals({ match: { refusals, voters } }: { match: LeaseMatch }) {
  const groups = useMemo(() => groupRefusals(refusals), [refusals]);
  const operators = new Map(voters.map(({ vote_key, operator }) => [vote_key, operator]));
  return (
    <DataTable
      id="refusals"
      rows={groups}
      rowKey={(row) => `${row.provider} ${row.reason}`}
      empty={<EmptyState title="None" />}
      columns={[
        { name: "Provider", cell: (row) => <ProviderName of={row.provider} />, sortBy: (row) => row.provider },
        { name: "Why", cell: (row) => <span title={row.reason}>{reasonText(row.reason)}</span>, sortBy: (row) => row.reason },
        {
          name: "Say validators",
          cell: (row) =>
            row.validators.length === voters.length
              ? `all ${voters.length}`
              : row.validators.map((validator) => (
                  <span key={validator} className="block">
                    <ValidatorName voteKey={validator} operator={operators.get(validator)} />
                  </span>
                )),
          sortBy: (row) => row.validators.length,
        },
        { name: "Late by", cell: (row) => (row.late_by_ms ? ms(row.late_by_ms) : "–"), sortBy: (row) => row.late_by_ms, isNumber: true },
      ]}
    />
  );
}
