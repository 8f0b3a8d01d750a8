import { Link, useLocation } from "wouter";
import { useLeaseMatch, useLeases, useNetwork } from "@/api/queries";
import type { Lease, LeaseCreated, LeasePhase } from "@/api/schema";
import { Button } from "@/components/Button";
import { DataTable, type Column } from "@/components/DataTable";
import { Drawer } from "@/components/Drawer";
import { LastKnown } from "@/components/LastKnown";
import { EmptyState, ErrorNotice, Loading, NoChain } from "@/components/Notice";
import { Page } from "@/components/Page";
import { Stat, Stats } from "@/components/Stat";
import { Time } from "@/components/Time";
import { capitalized, count, duration, exactTime, usd } from "@/lib/format";
import { useNow } from "@/lib/now";
import { ProviderName } from "@/market/names";
import { leaseTotals, runwayText, uptimeHint } from "@/market/leaseText";
import { closeText, nextAttemptText } from "@/market/orderText";
import { reasonText } from "@/market/reasons";
import { StateBadge } from "@/market/StateBadge";
import { EndLease } from "./leases/EndLease";
import { OrderWizard } from "./leases/OrderWizard";

export default function Leases({ isOrdering }: { isOrdering: boolean }) {
  const network = useNetwork();
  const [, navigate] = useLocation();
  const hasChain = Boolean(network.data?.chain);
  const onOrdered = ({ leases }: LeaseCreated) => {
    const [first] = leases;
    navigate(leases.length === 1 && first ? `/leases/${first.id}` : "/leases");
  };
  return (
    <Page
      title="Your leases"
      lead="A lease is a whole machine, or some of its GPUs, for a while. Providers bid for your order, and validators decide. Open one to follow it, to read its logs and to change it."
      actions={
        hasChain && (
          <Button look="main" onClick={() => navigate("/leases/new")}>
            Order a lease
          </Button>
        )
      }
    >
      <ErrorNotice error={network.error} />
      {network.isPending && <Loading />}
      {network.data && (hasChain ? <LeaseTable /> : <NoChain what="Leases" />)}
      {isOrdering && hasChain && (
        <Drawer title="Order a lease" onClose={() => navigate("/leases")}>
          <OrderWizard onOrdered={onOrdered} />
        </Drawer>
      )}
    </Page>
  );
}

function LeaseTable() {
  const leases = useLeases();
  const [, navigate] = useLocation();
  if (!leases.data) return leases.error ? <ErrorNotice error={leases.error} /> : <Loading />;
  return (
    <LastKnown error={leases.error} seenMs={leases.dataUpdatedAt}>
      {leases.data.data.length > 0 && <LeaseStats leases={leases.data.data} />}
      <DataTable
        id="own-leases"
        rows={leases.data.data}
        columns={COLUMNS}
        rowKey={(row) => row.id}
        onOpen={(row) => navigate(`/leases/${row.id}`)}
        empty={
          <EmptyState title="No lease yet">
            <p className="text-muted">Order one: who could serve it and what it would cost is shown before anything is held.</p>
            <Button look="main" onClick={() => navigate("/leases/new")}>
              Order a lease
            </Button>
          </EmptyState>
        }
      />
    </LastKnown>
  );
}

/** All of them together, of those that are listed. */
function LeaseStats({ leases }: { leases: Lease[] }) {
  const nowS = useNow();
  const { running, hourly, spent, left, nextEnd, warned } = leaseTotals(leases);
  return (
    <Stats>
      <Stat name="Running" unit={`of ${leases.length}`} hint="Leases whose provider has confirmed the start">
        {count(running)}
      </Stat>
      <Stat name="Costs now" unit="/h" hint="The burn rate of all that run">
        {usd(hourly)}
      </Stat>
      <Stat name="Spent" hint="By all leases below, also those that have ended">
        {usd(spent)}
      </Stat>
      <Stat name="Deposits left" hint="Of those that have not ended; what is not used comes back">
        {usd(left)}
      </Stat>
      <Stat name="Next end" hint={nextEnd ? exactTime(nextEnd) : "Nothing runs"}>
        {nextEnd ? duration(nextEnd - nowS) : "–"}
      </Stat>
      <Stat name="Low deposits" hint="80 % spent, or empty: top them up on their page">
        {count(warned)}
      </Stat>
    </Stats>
  );
}

const COLUMNS: Column<Lease>[] = [
  {
    name: "Name",
    cell: (row) => (
      <>
        <Link href={`/leases/${row.id}`} className="font-semibold hover:underline">
          {row.name}
        </Link>
        <span className="num small block break-all text-muted">{row.image}</span>
      </>
    ),
    sortBy: (row) => row.name,
  },
  { name: "State", cell: (row) => <Phase of={row} />, sortBy: (row) => row.phase },
  { name: "GPUs", cell: (row) => row.gpus, sortBy: (row) => row.gpus, isNumber: true },
  {
    name: "Provider",
    cell: ({ order }) => (order?.lease?.provider ? <ProviderName of={order.lease.provider} /> : "–"),
  },
  { name: "Price", cell: ({ order }) => (order?.lease ? `${usd(order.lease.hourly_usd)}/h` : "–"), isNumber: true },
  { name: "Deposit left", cell: (row) => <Deposit of={row} />, isNumber: true },
  { name: "Runs for", cell: (row) => <Runway of={row} />, sortBy: (row) => row.money?.runs_until ?? 0, isNumber: true },
  {
    name: "Uptime",
    cell: ({ uptime }) => (uptime ? <span title={uptimeHint(uptime)}>{uptime.percent} %</span> : "–"),
    sortBy: ({ uptime }) => Number(uptime?.percent ?? 0),
    isNumber: true,
  },
  { name: "Ordered", cell: (row) => <Time at={row.created_at} />, sortBy: (row) => row.created_at },
  { name: "", cell: (row) => <EndLease lease={row} /> },
];

/** Of what has ended: what it cost, since nothing is left. */
function Deposit({ of: { order, money, deposit_usd } }: { of: Lease }) {
  if (!order || order.refunded_usd === null) return usd(money?.left_usd ?? order?.deposit_usd ?? deposit_usd);
  return (
    <>
      {usd(order.deposit_usd)}
      <span className="small block text-muted">
        cost {usd(order.charged_usd)}, {usd(order.refunded_usd)} came back
      </span>
    </>
  );
}

/** How long it goes on; of what has not started or has ended: for how long it was ordered. */
function Runway({ of: { money, ending, duration_s } }: { of: Lease }) {
  const nowS = useNow();
  if (!money || ending || money.runway_s === null) return <span className="text-muted">{duration(duration_s)}</span>;
  const { text, why } = runwayText(money, nowS);
  return (
    <>
      {text}
      <span className="small block font-sans text-muted">{why}</span>
      {money.warning && <span className="small block font-sans text-suspect">◔ {money.warning === "deposit_low" ? "80 % spent" : "deposit empty"}</span>}
    </>
  );
}

const NOT_ON_CHAIN: Partial<Record<LeasePhase, string>> = { sending: "on its way to the chain", failed: "never got to the chain; nothing was charged" };

function Phase({ of: { phase, order, problem } }: { of: Lease }) {
  const nowS = useNow();
  const match = useLeaseMatch(order?.state === "unmatched" ? order.id : null);
  if (phase === "sending" || phase === "failed")
    return (
      <>
        <StateBadge state={phase} />
        <span className={`small block break-words ${phase === "failed" ? "text-suspect" : "text-muted"}`}>{problem ?? NOT_ON_CHAIN[phase]}</span>
      </>
    );
  return (
    <>
      <StateBadge state={order?.lease && phase === "matched" ? order.lease.state : phase} />
      {order?.reason && (
        <span className="small block text-suspect">
          {match.data?.why ?? `${capitalized(reasonText(order.reason))}.`} {order.state === "unmatched" && <span className="text-muted">{nextAttemptText(order, nowS)}</span>}
        </span>
      )}
      {order?.lease?.state === "pending" && phase === "matched" && <span className="small block text-muted">reserved, not started yet</span>}
      {order?.lease?.close_reason && <span className="small block text-muted">{closeText(order.lease.close_reason)}</span>}
    </>
  );
}
