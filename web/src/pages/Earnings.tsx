import { useMemo } from "react";
import { Link } from "wouter";
import { useEarnings, useEarningsSummary, useNetwork } from "@/api/queries";
import type { EarningsGroup } from "@/api/schema";
import { BarRow } from "@/components/BarRow";
import { DataTable, type Column } from "@/components/DataTable";
import { EmptyState, ErrorNotice, NoChain } from "@/components/Notice";
import { Page, Section } from "@/components/Page";
import { SegmentedControl } from "@/components/SegmentedControl";
import { Stat, Stats } from "@/components/Stat";
import { capitalized, count, percent, plural, shortId, usd } from "@/lib/format";
import { useQueryChoice } from "@/lib/urlState";
import { Electricity, powerCostPerDay, usePowerSettings } from "./earnings/Electricity";
import { earningsTotals } from "./earnings/earningsTotals";
import { LeaseIncome } from "./earnings/LeaseIncome";
import { Rewards } from "./earnings/Rewards";

const GROUPINGS = ["day", "model", "node"] as const;

export default function Earnings() {
  const [by, setBy] = useQueryChoice("by", GROUPINGS);
  const [summary, days, groups] = [useEarningsSummary(), useEarnings("day"), useEarnings(by)];
  const network = useNetwork();
  const power = usePowerSettings();
  const money = summary.data?.data;
  const nodes = money?.nodes ?? [];
  const totals = useMemo(() => earningsTotals(days.data?.data ?? [], new Date()), [days.data]);
  const nodeNames = useMemo(() => new Map(nodes.map((node) => [node.node_id, node.name ?? node.node_id])), [nodes]);
  const columns = useMemo(() => columnsOf(by, nodeNames), [by, nodeNames]);
  const costPerDay = nodes.reduce((sum, node) => sum + powerCostPerDay(node, power), 0);
  return (
    <Page
      title="Earnings"
      lead="What your nodes earned by inference and by leases, after the network's fee."
      actions={
        <>
          <a className="link small" href="/v1/earnings?by=job&format=csv&limit=1000">
            Statement, CSV
          </a>
          <a className="link small" href="/v1/earnings?by=job&limit=1000">
            JSON
          </a>
        </>
      }
    >
      <ErrorNotice error={summary.error ?? days.error} />
      <Stats>
        <Stat name="Today">
          <span data-testid="earned-today" data-value={totals.today}>
            {usd(totals.today)}
          </span>
        </Stat>
        <Stat name="Last 7 days">{usd(totals.week)}</Stat>
        <Stat name="Projected, 30 days" hint="The daily mean since the first earning of the last 7 days, times 30">
          {usd(totals.projected30d)}
        </Stat>
        <Stat name="Net of electricity, 30 days" hint={`${usd(costPerDay)} a day for ${plural(nodes.length, "node")}`}>
          {usd(totals.projected30d - 30 * costPerDay)}
        </Stat>
        <Stat name="Network's fee">{percent((money?.fee_bps ?? 0) / 10_000)}</Stat>
        <Stat name="Account">{money ? shortId(money.account, 12) : "–"}</Stat>
      </Stats>
      {money && (
        <Section title="Where the money is">
          {network.data && !network.data.chain && <NoChain what="Payouts" />}
          <Stats>
            <Stat name="Withheld" hint="Earned since each node's last passed check. The next that is passed releases it.">
              {usd(money.withheld_usd)}
            </Stat>
            <Stat name="Pending" hint="Earned, and in no payout batch yet">
              {usd(money.pending_usd)}
            </Stat>
            <Stat name="Batched" hint="In a payout batch that the chain does not have yet">
              {usd(money.batched_usd)}
            </Stat>
            <Stat name="Settled on chain">{usd(money.settled_usd)}</Stat>
            <Stat name="Claimed">{usd(money.claimed_usd)}</Stat>
            <Stat name="Promo" hint="Earned from free credits. It becomes payable as far as the treasury covers it.">
              {usd(money.promo_usd)}
            </Stat>
          </Stats>
        </Section>
      )}
      <Section title="Earned, 30 days" aside={<SegmentedControl label="By" value={by} options={GROUPINGS} onChange={setBy} />}>
        <DataTable
          id="earned"
          rows={groups.data?.data ?? []}
          columns={columns}
          rowKey={(row) => row.name}
          empty={
            <EmptyState title="None of your nodes has earned yet">
              <p className="text-muted">
                <Link href="/join" className="link">
                  Join a machine
                </Link>
                ; its first job shows here within seconds.
              </p>
            </EmptyState>
          }
        />
      </Section>
      {network.data?.chain && <LeaseIncome nodeNames={nodeNames} />}
      <Rewards />
      {nodes.length > 0 && (
        <Section title="How busy each node was">
          <div className="card space-y-3 p-4">
            {nodes.map(({ node_id, name, utilisation }) => (
              <BarRow
                key={node_id}
                label={
                  <Link href={`/nodes/${node_id}`} className="hover:underline">
                    {name ?? node_id}
                  </Link>
                }
                share={utilisation}
                colour="var(--busy)"
                value={percent(utilisation)}
              />
            ))}
          </div>
        </Section>
      )}
      <Electricity {...power} costPerDay={costPerDay} />
    </Page>
  );
}

function columnsOf(by: string, nodeNames: Map<string, string>): Column<EarningsGroup>[] {
  return [
    { name: capitalized(by), cell: (row) => nodeNames.get(row.name) ?? row.name, sortBy: (row) => row.name },
    { name: "Jobs", cell: (row) => count(row.jobs), sortBy: (row) => row.jobs, isNumber: true },
    { name: "Tokens written", cell: (row) => count(row.completion_tokens), sortBy: (row) => row.completion_tokens, isNumber: true },
    { name: "Fee", cell: (row) => usd(row.fee_usd), sortBy: (row) => Number(row.fee_usd), isNumber: true },
    { name: "Net, paid credits", cell: (row) => usd(row.net_usd), sortBy: (row) => Number(row.net_usd), isNumber: true },
    { name: "Net, promo", cell: (row) => usd(row.net_promo_usd), sortBy: (row) => Number(row.net_promo_usd), isNumber: true },
  ];
}
