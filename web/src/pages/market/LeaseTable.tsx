import { Link, useLocation } from "wouter";
import type { MarketLease } from "@/api/schema";
import { DataTable, type Column } from "@/components/DataTable";
import { EmptyState } from "@/components/Notice";
import { Time } from "@/components/Time";
import { shortId, usd } from "@/lib/format";
import { ProviderName } from "@/market/names";
import { closeText } from "@/market/orderText";
import { StateBadge } from "@/market/StateBadge";

export function LeaseTable({ leases }: { leases: MarketLease[] }) {
  const [, navigate] = useLocation();
  return (
    <DataTable
      id="leases"
      rows={leases}
      columns={COLUMNS}
      rowKey={(row) => row.id}
      onOpen={(row) => navigate(`/market/${row.id}`)}
      empty={
        <EmptyState title="No lease">
          <p className="text-muted">An order that finds a provider becomes a lease, with the order's id.</p>
        </EmptyState>
      }
    />
  );
}

const COLUMNS: Column<MarketLease>[] = [
  {
    name: "Lease",
    cell: (row) => (
      <Link href={`/market/${row.id}`} className="link num small">
        {shortId(row.id, 12)}
      </Link>
    ),
  },
  {
    name: "State",
    cell: (row) => (
      <>
        <StateBadge state={row.state} />
        {row.close_reason && <span className="small text-muted"> {closeText(row.close_reason)}</span>}
      </>
    ),
    sortBy: (row) => row.state,
  },
  { name: "Provider", cell: (row) => (row.provider ? <ProviderName of={row.provider} /> : "–") },
  { name: "Price", cell: (row) => `${usd(row.hourly_usd)}/h`, sortBy: (row) => Number(row.hourly_usd), isNumber: true },
  { name: "Deposit left", cell: (row) => usd(row.deposit_usd), sortBy: (row) => Number(row.deposit_usd), isNumber: true },
  { name: "Bond locked", cell: (row) => usd(row.locked_usd), sortBy: (row) => Number(row.locked_usd), isNumber: true },
  { name: "Ends", cell: (row) => <End of={row} />, sortBy: (row) => row.ends_at ?? row.closed_at ?? 0 },
];

/** One that has not started has no end yet. */
function End({ of: { ends_at, closed_at } }: { of: MarketLease }) {
  const at = ends_at ?? closed_at;
  return at === null ? "–" : <Time at={at} />;
}
