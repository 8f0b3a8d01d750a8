import { useMemo } from "react";
import { SPANS, useHistory, useMarketLeases, useMarketProviders, useMe, useNetwork, useNodes, type Span } from "@/api/queries";
import type { GpuClassSummary, NodeStateName, RegionNodes } from "@/api/schema";
import { DataTable } from "@/components/DataTable";
import { HistoryChart, type ChartSpec } from "@/components/HistoryChart";
import { JoinHint } from "@/components/JoinHint";
import { NodeStateBadge } from "@/components/NodeStateBadge";
import { EmptyState, ErrorNotice } from "@/components/Notice";
import { Section } from "@/components/Page";
import { RollingNumber } from "@/components/RollingNumber";
import { SegmentedControl } from "@/components/SegmentedControl";
import { Stat, Stats } from "@/components/Stat";
import { useFeed } from "@/feed/useFeed";
import { count, digits, ms, short, usd } from "@/lib/format";
import { useQueryChoice } from "@/lib/urlState";
import { WorldMap } from "@/map/WorldMap";
import { leasedNodes } from "@/market/leasedNodes";
import { MatchStream } from "@/match/MatchStream";
import { GetStarted } from "./network/GetStarted";
import { Headline } from "./network/Headline";
import { Tiers } from "./network/Tiers";

const STATES: NodeStateName[] = ["online", "busy", "suspect", "paused", "draining", "offline"];
const CHARTS: ChartSpec[] = [
  { title: "Tokens", unit: "tokens/s", series: [{ name: "tokens", colour: "volt", value: (figures) => figures.tokens_per_s }] },
  { title: "Nodes", unit: "online", series: [{ name: "nodes", colour: "online", value: (figures) => figures.nodes }] },
  {
    title: "First token",
    unit: "ms",
    series: [
      { name: "p50", colour: "busy", value: (figures) => figures.first_token_p50_ms },
      { name: "p95", colour: "suspect", value: (figures) => figures.first_token_p95_ms },
    ],
  },
];

export function Network() {
  const [span, setSpan] = useQueryChoice<Span>("span", SPANS);
  const { totals, connected } = useFeed();
  const [network, history, me] = [useNetwork(), useHistory("network", span), useMe()];
  const nodes = useNodes(Boolean(me.data));
  const names = useMemo(() => new Map((nodes.data?.data ?? []).map(({ handle, id, name }) => [handle, { id, name }])), [nodes.data]);
  const hasMarket = Boolean(me.data && network.data?.chain);
  const [onLease, providers] = [useMarketLeases("open", hasMarket), useMarketProviders(hasMarket)];
  const leases = useMemo(() => leasedNodes(onLease.data?.data ?? [], providers.data?.data ?? []), [onLease.data, providers.data]);
  return (
    <div className="space-y-6">
      <h1 className="sr-only">Network</h1>
      <div className="relative border-b border-line">
        <WorldMap names={names} leases={leases} />
        <Headline totals={totals} />
        <ul
          aria-label="Nodes by state"
          className="small flex flex-wrap gap-x-3 gap-y-1 px-4 py-3 text-muted lg:absolute lg:right-3 lg:bottom-3 lg:justify-end lg:rounded-md lg:bg-ink/70 lg:px-2 lg:py-1"
        >
          {STATES.map((state) => (
            <li key={state}>
              <NodeStateBadge state={state} count={totals?.nodes[state] ?? 0} />
            </li>
          ))}
          {hasMarket && (
            <li className="flex items-center gap-1.5 whitespace-nowrap" title="Nodes that run a lease, by the chain" data-testid="leased-nodes">
              <span aria-hidden className="num text-text">
                ▢
              </span>
              <span className="num">{count(leases.size)}</span> with leases
            </li>
          )}
          <li className="flex items-center gap-1.5 whitespace-nowrap" title="Always drawn in the Atlantic: the map does not know where it is">
            <span aria-hidden className="num text-volt">
              ◆
            </span>
            the gateway
          </li>
        </ul>
      </div>
      <div className="mx-auto max-w-[1280px] space-y-6 px-4 pb-6 md:px-6">
        {!connected && <ErrorNotice error={network.error} />}
        <GetStarted isLoggedIn={Boolean(me.data)} model={network.data?.models[0]?.id} hasChain={Boolean(network.data?.chain)} />
        {totals && (
          <Stats>
            <Stat name="GPUs online">
              <RollingNumber value={totals.gpus} format={count} />
            </Stat>
            <Stat name={totals.gpus ? "VRAM" : "Memory"} unit="GB" hint="For a machine without a GPU: the memory that its model server may use">
              <RollingNumber value={totals.vram_gb} format={short} />
            </Stat>
            <Stat name="Tokens" unit="/s">
              <RollingNumber value={totals.tokens_per_s} format={digits} />
            </Stat>
            <Stat name="Jobs running">
              <RollingNumber value={totals.jobs} format={count} />
            </Stat>
            <Stat name="First token, median">{ms(totals.first_token_ms)}</Stat>
            <Stat name="Models">{count(network.data?.models.length ?? 0)}</Stat>
          </Stats>
        )}
        <Section title="Latest matches">
          <MatchStream limit={8} />
        </Section>
        <Section title="Over time" aside={<SegmentedControl label="Time" value={span} options={SPANS} onChange={setSpan} />}>
          <div className="grid gap-4 lg:grid-cols-3">
            {CHARTS.map((spec) => (
              <HistoryChart key={spec.title} history={history.data} spec={spec} />
            ))}
          </div>
        </Section>
        <div className="grid gap-6 lg:grid-cols-2">
          <Section title="GPU classes">
            <GpuClassTable classes={network.data?.classes ?? []} />
          </Section>
          <Section title="Regions">
            <RegionTable regions={network.data?.regions ?? []} />
          </Section>
        </div>
        <Tiers />
      </div>
    </div>
  );
}

function NoNode() {
  return (
    <EmptyState title="No node is online">
      <JoinHint />
    </EmptyState>
  );
}

function GpuClassTable({ classes }: { classes: GpuClassSummary[] }) {
  return (
    <DataTable
      id="classes"
      rows={classes}
      rowKey={(row) => row.class}
      empty={<NoNode />}
      columns={[
        { name: "Class", cell: (row) => row.class, sortBy: (row) => row.class },
        { name: "Nodes", cell: (row) => count(row.nodes), sortBy: (row) => row.nodes, isNumber: true },
        { name: "GPUs", cell: (row) => count(row.gpus), sortBy: (row) => row.gpus, isNumber: true },
        { name: "Memory", cell: (row) => `${count(row.vram_gb)} GB`, sortBy: (row) => row.vram_gb, isNumber: true },
        { name: "Median price", cell: (row) => `${usd(row.hourly_usd_median)}/h`, sortBy: (row) => Number(row.hourly_usd_median), isNumber: true },
      ]}
    />
  );
}

function RegionTable({ regions }: { regions: RegionNodes[] }) {
  return (
    <DataTable
      id="regions"
      rows={regions}
      rowKey={(row) => row.region}
      toDownload={(row) => ({ region: row.region, ...row.nodes })}
      empty={<NoNode />}
      columns={[
        { name: "Region", cell: (row) => row.region, sortBy: (row) => row.region },
        {
          name: "Nodes",
          cell: (row) => (
            <span className="flex flex-wrap gap-3">
              {STATES.filter((state) => row.nodes[state]).map((state) => (
                <NodeStateBadge key={state} state={state} count={row.nodes[state]} />
              ))}
            </span>
          ),
        },
      ]}
    />
  );
}
