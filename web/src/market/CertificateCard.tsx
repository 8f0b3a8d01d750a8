import type { LeaseMatch, MatchCertificate } from "@/api/schema";
import { Time } from "@/components/Time";
import { count, duration, percent, usd } from "@/lib/format";
import { Detail, Details } from "@/match/Details";
import { ValidatorName } from "./names";
import { countVotes } from "./stake";
import { VoteRing } from "./VoteRing";

/** The certificate of an attempt: who signed it, what it says, and how long it took. */
export function CertificateCard({ certificate, match }: { certificate: MatchCertificate; match: LeaseMatch }) {
  const { voters, order } = match;
  const votes = countVotes(certificate.signers, voters);
  const operators = new Map(voters.map(({ vote_key, operator }) => [vote_key, operator]));
  const label = `${certificate.signers.length} of ${voters.length} validators signed, ${percent(votes.share)} of the stake`;
  return (
    <div className="space-y-3" data-testid="certificate">
      <div className="card flex items-center gap-4 p-4">
        <VoteRing votes={votes} label={label} sizePx={64} />
        <div className="min-w-0">
          <p>{label}</p>
          <p className="small text-muted">{votes.isQuorum ? "A quorum: more than two thirds. A vote that came later is not in it." : "A quorum is more than two thirds."}</p>
          <ul className="mt-1 flex flex-wrap gap-x-3 text-muted" aria-label="Signers">
            {certificate.signers.map((signer) => (
              <li key={signer}>
                <ValidatorName voteKey={signer} operator={operators.get(signer)} />
              </li>
            ))}
          </ul>
        </div>
      </div>
      <Details>
        <Detail name="Winner is paid">{certificate.pay_usd === null ? "nobody won" : `${usd(certificate.pay_usd)}/h`}</Detail>
        <Detail name="Accepted">
          {certificate.accepted_at === null ? "not yet" : <Time at={certificate.accepted_at} />}
          {certificate.accepted_at !== null && match.attempt === order.attempt && (
            <span className="small block font-sans text-muted">{tookText(certificate.accepted_at - order.opened_at)} after the lookup</span>
          )}
        </Detail>
        <Detail name="Round">{certificate.round + 1}</Detail>
        <Detail name="Bids judged">{count(certificate.bid_count)}</Detail>
        <Detail name="Stake version">{order.stake_version}</Detail>
        <Detail name="Table of providers">epoch {order.snapshot_epoch}</Detail>
      </Details>
    </div>
  );
}

/** The chain counts whole seconds. */
function tookText(tookS: number): string {
  return tookS < 1 ? "less than 1 s" : duration(tookS);
}
