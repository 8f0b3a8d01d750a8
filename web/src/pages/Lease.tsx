import { Link } from "wouter";
import { ApiError } from "@/api/client";
import { useLease, useLeaseEvents, useWatchedMatch } from "@/api/queries";
import type { LeaseDetails } from "@/api/schema";
import { LastKnown } from "@/components/LastKnown";
import { EmptyState, ErrorNotice, Loading } from "@/components/Notice";
import { Page, Section } from "@/components/Page";
import { capitalized } from "@/lib/format";
import { useNow } from "@/lib/now";
import { currentStep } from "@/market/leaseSteps";
import { endingText, warningText } from "@/market/leaseText";
import { nextAttemptText } from "@/market/orderText";
import { PhaseTimeline } from "@/market/PhaseTimeline";
import { LeaseActions } from "./leases/LeaseActions";
import { LeaseEvents } from "./leases/LeaseEvents";
import { LeaseFacts } from "./leases/LeaseFacts";
import { LeaseMoneyStats } from "./leases/LeaseMoneyStats";
import { LeaseStates } from "./leases/LeaseStates";
import { LogsAndTerminal } from "./leases/LogsAndTerminal";

/** One lease of one's own: where it is, what it costs, what its program writes, and what happened to it. */
export default function Lease({ id }: { id: string }) {
  const lease = useLease(id);
  const { data } = lease;
  const state = data?.order?.lease;
  const events = useLeaseEvents(data?.order_id ? data.id : null, `${data?.phase} ${state?.state} ${state?.term} ${data?.money?.deposited_usd} ${state?.ends_at}`);
  if (!data) return <Page title="Lease">{lease.error ? <LeaseProblem error={lease.error} /> : <Loading />}</Page>;
  return (
    <Page
      title={data.name}
      lead={
        <span className="num break-all">
          {data.image} <span className="small">· lease {data.id}</span>
        </span>
      }
      actions={<LeaseActions lease={data} />}
    >
      <LastKnown error={lease.error} seenMs={lease.dataUpdatedAt}>
        <Standing lease={data} />
        <LeaseStates lease={data} events={events.data?.data ?? []} />
        {data.order_id && (data.phase === "open" || data.phase === "unmatched") && <Auction orderId={data.order_id} />}
        <LeaseMoneyStats lease={data} />
        <div className="grid grid-cols-[minmax(0,1fr)] gap-6 lg:grid-cols-[minmax(0,2fr)_minmax(0,1fr)]">
          <LogsAndTerminal lease={data} />
          <div className="space-y-6">
            <Section title="Events">
              <LeaseEvents events={events.data?.data} error={events.error} isOnChain={data.order_id !== null} />
            </Section>
            <Section title="What was ordered" aside={data.order_id && <AuctionLink orderId={data.order_id} />}>
              <LeaseFacts lease={data} />
            </Section>
          </div>
        </div>
      </LastKnown>
    </Page>
  );
}

/** What one should know first: a warning, what it waits for, or how it ended. */
function Standing({ lease }: { lease: LeaseDetails }) {
  const nowS = useNow();
  const { money, ending, problem, missing_secrets, phase, program, uptime } = lease;
  const warning = money && !ending && warningText(money);
  const waits = waitText(lease, nowS);
  return (
    <div className="space-y-2" aria-live="polite" data-testid="standing">
      {ending && (
        <p className="rounded-md border border-line p-3" data-testid="ending">
          {endingText(ending)} <span className="num small text-muted">{ending.reason}</span>
        </p>
      )}
      {uptime?.credit && (
        <p className="rounded-md border border-line p-3" data-testid="uptime-credit">
          {capitalized(uptime.credit.text)}.
        </p>
      )}
      {phase === "failed" && <p className="rounded-md border border-offline p-3">It never got to the chain, and nothing was charged{problem ? `: ${problem}` : "."}</p>}
      {warning && (
        <p className="rounded-md border border-suspect p-3" data-testid="deposit-warning">
          <span aria-hidden className="text-suspect">
            ◔{" "}
          </span>
          {warning}
        </p>
      )}
      {program?.warning && !ending && (
        <p className="rounded-md border border-suspect p-3" data-testid="program-warning">
          <span aria-hidden className="text-suspect">
            ◔{" "}
          </span>
          {program.warning}
        </p>
      )}
      {missing_secrets.length > 0 && !ending && (
        <p className="rounded-md border border-suspect p-3">
          It waits for the values of its secrets ({missing_secrets.join(", ")}). Your own command seals them: sparewatt lease secrets {lease.id}
        </p>
      )}
      {waits && <p className="text-muted">{waits}</p>}
    </div>
  );
}

/** The phases of the auction that looks for a provider. */
function Auction({ orderId }: { orderId: string }) {
  const match = useWatchedMatch(orderId, "");
  return (
    <Section title="Its auction" aside={<AuctionLink orderId={orderId} />}>
      {match.data ? <PhaseTimeline match={match.data} seenMs={match.dataUpdatedAt} /> : match.error ? <ErrorNotice error={match.error} /> : <Loading />}
      {match.data?.why && <p className="text-suspect">{match.data.why}</p>}
    </Section>
  );
}

function AuctionLink({ orderId }: { orderId: string }) {
  return (
    <Link href={`/market/${orderId}`} className="link small">
      See its auction, bid by bid
    </Link>
  );
}

function waitText(lease: LeaseDetails, nowS: number): string | null {
  const { phase, order } = lease;
  if (phase === "sending") return "It is on its way to the chain.";
  if (phase === "open") return "Its auction runs: providers bid sealed, and validators decide.";
  if (phase === "unmatched" && order) return `Nobody yet. ${nextAttemptText(order, nowS)}`;
  if (order?.lease?.state === "vacant") return "Its provider left or failed. A stand-in takes over; the meter stands meanwhile.";
  if (order?.lease?.state === "unplaced") return "No provider is left. Hold a new auction, or close it.";
  return currentStep(lease) === "starting" ? "Its provider fetches the image and starts the program. The meter runs from then." : null;
}

function LeaseProblem({ error }: { error: Error }) {
  const status = error instanceof ApiError ? error.status : null;
  if (status === 404 || status === 403)
    return (
      <EmptyState title={status === 403 ? "You may not see this lease" : "You have no such lease"}>
        <p className="text-muted">{error.message}</p>
        <p className="text-muted">A lease is shown to the account that ordered it, and to nobody else. If it is yours, log in with that account.</p>
        <Link href="/leases" className="link">
          Your leases
        </Link>
      </EmptyState>
    );
  return (
    <>
      <ErrorNotice error={error} />
      <p className="text-muted">Your program does not depend on this page: provider and chain go on without it, and the meter with them. This page tries again by itself.</p>
    </>
  );
}
