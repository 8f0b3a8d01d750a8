import { Link } from "wouter";
import { useRewards } from "@/api/queries";
import type { AccountReward } from "@/api/schema";
import { DataTable, type Column } from "@/components/DataTable";
import { EmptyState, ErrorNotice } from "@/components/Notice";
import { Section } from "@/components/Page";
import { Stat, Stats } from "@/components/Stat";
import { Time } from "@/components/Time";
import { shortId, usd } from "@/lib/format";

const PPM = 1_000_000;

/** What eras paid to the account's nodes, line by line. Each node's page says why. */
export function Rewards() {
  const rewards = useRewards();
  const { data } = rewards;
  return (
    <Section title="Rewards">
      <ErrorNotice error={rewards.error} />
      {data && data.data.length > 0 && (
        <Stats>
          <Stat name="Waiting" hint="In batches whose root the chain does not have yet">
            {usd(data.waiting_usd)}
          </Stat>
          <Stat name="On the chain">{usd(data.posted_usd)}</Stat>
          <Stat name="Claimed">{usd(data.claimed_usd)}</Stat>
        </Stats>
      )}
      <DataTable
        id="rewards"
        rows={data?.data ?? []}
        columns={COLUMNS}
        rowKey={(row) => `${row.era}:${row.node}`}
        empty={
          <EmptyState title="No era has counted a node of yours yet">
            <p className="text-muted">An era is a day. Work that other accounts pay for, and checks that a node passes, make it count.</p>
          </EmptyState>
        }
      />
    </Section>
  );
}

const COLUMNS: Column<AccountReward>[] = [
  { name: "Era", cell: (row) => row.era, sortBy: (row) => row.era, isNumber: true },
  { name: "Ended", cell: (row) => <Time at={row.until} />, sortBy: (row) => row.until },
  {
    name: "Node",
    cell: (row) => (
      <Link href={`/nodes/${row.node}`} className="link num">
        {shortId(row.node)}
      </Link>
    ),
    sortBy: (row) => row.node,
  },
  { name: "Availability", cell: (row) => usd(row.availability_micro / PPM), sortBy: (row) => row.availability_micro, isNumber: true },
  { name: "Uptime bonus", cell: (row) => usd(row.uptime_micro / PPM), sortBy: (row) => row.uptime_micro, isNumber: true },
  { name: "Quality bonus", cell: (row) => usd(row.quality_micro / PPM), sortBy: (row) => row.quality_micro, isNumber: true },
  { name: "Total", cell: (row) => usd(row.total_usd), sortBy: (row) => row.total_micro, isNumber: true },
];
