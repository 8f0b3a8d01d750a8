import { Link } from "wouter";
import { useLeaseIncome } from "@/api/queries";
import type { LeaseIncome as Income } from "@/api/schema";
import { DataTable, type Column } from "@/components/DataTable";
import { EmptyState, ErrorNotice } from "@/components/Notice";
import { Section } from "@/components/Page";
import { Stat, Stats } from "@/components/Stat";
import { Time } from "@/components/Time";
import { count, shortId, usd } from "@/lib/format";
import { bookedText } from "@/market/leaseText";
import { useNow } from "@/lib/now";

/** What leases bring, beside inference: by the chain, where providers are paid. */
export function LeaseIncome({ nodeNames }: { nodeNames: Map<string, string> }) {
  const income = useLeaseIncome(true);
  if (!income.data) return <ErrorNotice error={income.error} />;
  const { data, earned_usd, due_usd, hourly_usd, leases } = income.data;
  return (
    <Section title="Leases">
      <div className="space-y-4" data-testid="lease-income">
        <Stats>
          <Stat name="Earned by leases" hint="Settled on the chain, after the network's fee">
            {usd(earned_usd)}
          </Stat>
          <Stat name="Due since then" hint="Runs since the last settlement; before the fee">
            {usd(due_usd)}
          </Stat>
          <Stat name="Brings now" unit="/h" hint="Of all leases that run, before the fee">
            {usd(hourly_usd)}
          </Stat>
          <Stat name="Leases">{count(leases)}</Stat>
        </Stats>
        <DataTable
          id="lease-income"
          rows={data}
          columns={columnsOf(nodeNames)}
          rowKey={(row) => `${row.id} ${row.provider}`}
          empty={
            <EmptyState title="No lease yet">
              <p className="text-muted">A node takes part in auctions once it is registered for leases, on its page.</p>
            </EmptyState>
          }
        />
      </div>
    </Section>
  );
}

function columnsOf(nodeNames: Map<string, string>): Column<Income>[] {
  return [
    {
      name: "Lease",
      cell: (row) => (
        <Link href={`/market/${row.id}`} className="num small hover:underline">
          {shortId(row.id)}
        </Link>
      ),
    },
    {
      name: "Node",
      cell: (row) => (
        <Link href={`/nodes/${row.node}`} className="hover:underline">
          {nodeNames.get(row.node) ?? shortId(row.node)}
        </Link>
      ),
    },
    { name: "Booked", cell: (row) => <Booked of={row} />, sortBy: (row) => row.placed_at },
    { name: "Price", cell: (row) => `${usd(row.hourly_usd)}/h`, sortBy: (row) => Number(row.hourly_usd), isNumber: true },
    { name: "Since", cell: (row) => <Time at={row.placed_at} />, sortBy: (row) => row.placed_at },
    { name: "Due", cell: (row) => usd(row.due_usd), sortBy: (row) => Number(row.due_usd), isNumber: true },
    { name: "Earned", cell: (row) => usd(row.earned_usd), sortBy: (row) => Number(row.earned_usd), isNumber: true },
  ];
}

export function Booked({ of }: { of: Income }) {
  return <span className={of.left_at === null ? "" : "text-muted"}>{bookedText(of, useNow())}</span>;
}
