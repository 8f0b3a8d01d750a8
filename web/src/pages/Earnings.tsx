import { useMemo } from "react";
import { Link } from "wouter";
import { useEarnings, useMe, useStanding } from "@/api/queries";
import type { EarningSum } from "@/api/types";
import { useChosen } from "@/lib/address";
import { count, percent, plural, usd } from "@/lib/format";
import { DataTable, type Column } from "@/parts/DataTable";
import { Empty, ErrorNote } from "@/parts/Note";
import { Page, Section } from "@/parts/Page";
import { Stat, Stats } from "@/parts/Stat";
import { Choice } from "@/parts/Tabs";
import { Electricity, powerCost, useElectricity } from "./earnings/Electricity";
import { sumsOf } from "./earnings/sums";

const BY = ["day", "model", "node"] as const;

export default function Earnings() {
  const [by, setBy] = useChosen("by", BY);
  const [standing, days, lines, me] = [useStanding(), useEarnings("day"), useEarnings(by), useMe()];
  const electricity = useElectricity();
  const nodes = standing.data?.data.nodes ?? [];
  const sums = useMemo(() => sumsOf(days.data?.data ?? [], new Date()), [days.data]);
  const names = useMemo(() => new Map(nodes.map((node) => [node.node_id, node.name ?? node.node_id])), [nodes]);
  const columns = useMemo(() => columnsBy(by, names), [by, names]);
  const costPerDay = nodes.reduce((sum, node) => sum + powerCost(node, electricity), 0);
  return (
    <Page
      title="Earnings"
      lead="What your nodes earned, after the network's fee."
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
      <ErrorNote error={standing.error ?? days.error} />
      <Stats>
        <Stat name="Today">
          <span data-testid="earned-today" data-value={sums.today}>
            {usd(sums.today)}
          </span>
        </Stat>
        <Stat name="Last 7 days">{usd(sums.week)}</Stat>
        <Stat name="Projected, 30 days" hint="The mean of the last 7 days, or of those there are, times 30">
          {usd(sums.projected)}
        </Stat>
        <Stat name="Net of electricity, 30 days" hint={`${usd(costPerDay)} a day for ${plural(nodes.length, "node")}`}>
          {usd(sums.projected - 30 * costPerDay)}
        </Stat>
        <Stat name="Fee">{percent((standing.data?.data.fee_bps ?? 0) / 10_000)}</Stat>
        <Stat name="Account">{me.data?.account.id.slice(0, 12)}…</Stat>
      </Stats>
      {standing.data && (
        <Section title="Where the money stands">
          <Stats>
            <Stat name="Pending" hint="Earned, in no batch yet">
              {usd(standing.data.data.pending_usd)}
            </Stat>
            <Stat name="Batched">{usd(standing.data.data.batched_usd)}</Stat>
            <Stat name="Settled on chain">{usd(standing.data.data.settled_usd)}</Stat>
            <Stat name="Claimed">{usd(standing.data.data.claimed_usd)}</Stat>
            <Stat name="Promo" hint="Earned from free credits: payable as far as the treasury covers it">
              {usd(standing.data.data.promo_usd)}
            </Stat>
          </Stats>
        </Section>
      )}
      <Section title="Earned, 30 days" aside={<Choice label="By" value={by} options={BY} onChange={setBy} />}>
        <DataTable
          id="earned"
          rows={lines.data?.data ?? []}
          columns={columns}
          rowKey={(row) => row.name}
          plain={(row) => ({ ...row })}
          empty={
            <Empty title="No node of yours has earned yet">
              <p className="text-muted">
                <Link href="/join" className="link">
                  Join a machine
                </Link>
                ; its first job shows here within seconds.
              </p>
            </Empty>
          }
        />
      </Section>
      {nodes.length > 0 && (
        <Section title="How busy each node was">
          <ul className="card space-y-3 p-4">
            {nodes.map((node) => (
              <li key={node.node_id} className="grid grid-cols-[10rem_1fr_5rem] items-center gap-3">
                <Link href={`/nodes/${node.node_id}`} className="truncate hover:underline">
                  {node.name ?? node.node_id}
                </Link>
                <span aria-hidden className="h-3 overflow-hidden rounded-md bg-line">
                  <span className="block h-full bg-busy" style={{ width: `${Math.min(1, node.utilisation) * 100}%` }} />
                </span>
                <span className="num small text-right">{percent(node.utilisation)}</span>
              </li>
            ))}
          </ul>
        </Section>
      )}
      <Electricity {...electricity} costPerDay={costPerDay} />
    </Page>
  );
}

function columnsBy(by: string, names: Map<string, string>): Column<EarningSum>[] {
  return [
    { name: by.replace(/^./, (first) => first.toUpperCase()), cell: (row) => names.get(row.name) ?? row.name, by: (row) => row.name },
    { name: "Jobs", cell: (row) => count(row.jobs), by: (row) => row.jobs, isNumber: true },
    { name: "Tokens written", cell: (row) => count(row.completion_tokens), by: (row) => row.completion_tokens, isNumber: true },
    { name: "Fee", cell: (row) => usd(row.fee_usd), by: (row) => Number(row.fee_usd), isNumber: true },
    { name: "Net, paid credits", cell: (row) => usd(row.net_usd), by: (row) => Number(row.net_usd), isNumber: true },
    { name: "Net, promo", cell: (row) => usd(row.net_promo_usd), by: (row) => Number(row.net_promo_usd), isNumber: true },
  ];
}
