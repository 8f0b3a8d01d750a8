import { useMemo } from "react";
import { SPANS, useHistory, useMe, useNetwork, useNodes, type Span } from "@/api/queries";
import type { GpuClass, Network as NetworkShape, StateName } from "@/api/types";
import { useFeed } from "@/feed/useFeed";
import { useChosen } from "@/lib/address";
import { count, digits, ms, short, usd } from "@/lib/format";
import { WorldMap } from "@/map/WorldMap";
import { MatchStream } from "@/match/MatchStream";
import { DataTable } from "@/parts/DataTable";
import { HistoryChart, type Drawn } from "@/parts/History";
import { JoinHint } from "@/parts/JoinHint";
import { Empty, ErrorNote } from "@/parts/Note";
import { Section } from "@/parts/Page";
import { RollingNumber } from "@/parts/RollingNumber";
import { Stat, Stats } from "@/parts/Stat";
import { StateMark } from "@/parts/StateMark";
import { Choice } from "@/parts/Tabs";
import { Doors } from "./network/Doors";
import { Headline } from "./network/Headline";

const STATES: StateName[] = ["online", "busy", "suspect", "paused", "draining", "offline"];
const LINES: Drawn[] = [
  { title: "Tokens", unit: "tokens/s", lines: [{ name: "tokens", colour: "volt", of: (point) => point.tokens_per_s }] },
  { title: "Nodes", unit: "online", lines: [{ name: "nodes", colour: "online", of: (point) => point.nodes }] },
  {
    title: "First token",
    unit: "ms",
    lines: [
      { name: "p50", colour: "busy", of: (point) => point.first_token_p50_ms },
      { name: "p95", colour: "suspect", of: (point) => point.first_token_p95_ms },
    ],
  },
];

export function Network() {
  const [span, setSpan] = useChosen<Span>("span", SPANS);
  const { totals, connected } = useFeed();
  const [network, history, me] = [useNetwork(), useHistory("network", span), useMe()];
  const nodes = useNodes(Boolean(me.data));
  const names = useMemo(
    () => new Map((nodes.data?.data ?? []).map((node) => [node.handle, { id: node.id, name: node.name }])),
    [nodes.data],
  );
  return (
    <div className="space-y-6">
      <h1 className="sr-only">Network</h1>
      <div className="relative border-b border-line">
        <WorldMap names={names} />
        <Headline totals={totals} />
        <ul
          aria-label="Nodes by state"
          className="small flex flex-wrap gap-x-3 gap-y-1 px-4 py-3 text-muted lg:absolute lg:right-3 lg:bottom-3 lg:justify-end lg:rounded-md lg:bg-ink/70 lg:px-2 lg:py-1"
        >
          {STATES.map((state) => (
            <li key={state}>
              <StateMark state={state} count={totals?.nodes[state] ?? 0} />
            </li>
          ))}
          <li className="flex items-center gap-1.5 whitespace-nowrap" title="Drawn at sea, wherever it is">
            <span aria-hidden className="num text-volt">
              ◆
            </span>
            the gateway
          </li>
        </ul>
      </div>
      <div className="mx-auto max-w-[1280px] space-y-6 px-4 pb-6 md:px-6">
        {!connected && <ErrorNote error={network.error} />}
        <Doors isKnown={Boolean(me.data)} model={network.data?.models[0]?.id} />
        {totals && (
          <Stats>
            <Stat name="GPUs online">
              <RollingNumber value={totals.gpus} format={count} />
            </Stat>
            <Stat name={totals.gpus ? "VRAM" : "Memory"} unit="GB" hint="Of a machine without a GPU: the memory that its model server may use">
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
        <Section title="Last matches">
          <MatchStream limit={8} />
        </Section>
        <Section
          title="Lines"
          aside={<Choice label="Time" value={span} options={SPANS} onChange={setSpan} />}
        >
          <div className="grid gap-4 lg:grid-cols-3">
            {LINES.map((drawn) => (
              <HistoryChart key={drawn.title} history={history.data} drawn={drawn} />
            ))}
          </div>
        </Section>
        <div className="grid gap-6 lg:grid-cols-2">
          <Section title="Price per class of GPU">
            <Classes classes={network.data?.classes ?? []} />
          </Section>
          <Section title="Regions">
            <Regions regions={network.data?.regions ?? []} />
          </Section>
        </div>
      </div>
    </div>
  );
}

function NoNode() {
  return (
    <Empty title="No node is online">
      <JoinHint />
    </Empty>
  );
}

function Classes({ classes }: { classes: GpuClass[] }) {
  return (
    <DataTable
      id="classes"
      rows={classes}
      rowKey={(row) => row.class}
      plain={(row) => ({ ...row })}
      empty={<NoNode />}
      columns={[
        { name: "Class", cell: (row) => row.class, by: (row) => row.class },
        { name: "Nodes", cell: (row) => count(row.nodes), by: (row) => row.nodes, isNumber: true },
        { name: "GPUs", cell: (row) => count(row.gpus), by: (row) => row.gpus, isNumber: true },
        { name: "Memory", cell: (row) => `${count(row.vram_gb)} GB`, by: (row) => row.vram_gb, isNumber: true },
        { name: "Median price", cell: (row) => (row.hourly_usd_median === null ? "by the token" : `${usd(row.hourly_usd_median)}/h`), by: (row) => Number(row.hourly_usd_median ?? -1), isNumber: true },
      ]}
    />
  );
}

function Regions({ regions }: { regions: NetworkShape["regions"] }) {
  return (
    <DataTable
      id="regions"
      rows={regions}
      rowKey={(row) => row.region}
      plain={(row) => ({ region: row.region, ...row.nodes })}
      empty={<NoNode />}
      columns={[
        { name: "Region", cell: (row) => row.region, by: (row) => row.region },
        {
          name: "Nodes",
          cell: (row) => (
            <span className="flex flex-wrap gap-3">
              {STATES.filter((state) => row.nodes[state]).map((state) => (
                <StateMark key={state} state={state} count={row.nodes[state]} />
              ))}
            </span>
          ),
        },
      ]}
    />
  );
}
