import { useMatchReport, useMe, useNode, useReputation, useTrust, useUptime } from "@/api/queries";
import type { Node as NodeInfo, NodeModel } from "@/api/schema";
import { CopyableText } from "@/components/CopyableText";
import { DataTable, type Column } from "@/components/DataTable";
import { NodeStateBadge } from "@/components/NodeStateBadge";
import { EmptyState, ErrorNotice } from "@/components/Notice";
import { Page, Section } from "@/components/Page";
import { Stat, Stats } from "@/components/Stat";
import { Time } from "@/components/Time";
import { count, digits, gb, ms, percent, usd } from "@/lib/format";
import { BulletChart } from "./node/BulletChart";
import { Gauges } from "./node/Gauges";
import { Leases } from "./node/Leases";
import { MatchReport } from "./node/MatchReport";
import { NodeJobs } from "./node/NodeJobs";
import { gpuText, priceText } from "./node/nodeText";
import { Reputation } from "./node/Reputation";
import { Trust } from "./node/Trust";
import { UptimeCalendar } from "./node/UptimeCalendar";

export default function Node({ id }: { id: string }) {
  const [node, uptime, me, reputation, trust] = [useNode(id), useUptime(id), useMe(), useReputation(id), useTrust(id)];
  const maySeeReport = Boolean(node.data && (node.data.yours || me.data?.role === "operator"));
  const report = useMatchReport(maySeeReport ? id : null);
  if (!node.data)
    return (
      <Page title="Node">
        <ErrorNotice error={node.error} />
      </Page>
    );
  const { data } = node;
  return (
    <Page title={data.name} lead={<span className="num break-all">{data.id}</span>} actions={<NodeStateBadge state={data.state} />}>
      <NodeStats node={data} />
      {data.paused && <p className="text-suspect">Paused: {data.paused}</p>}
      {data.sensors && <Gauges sensors={data.sensors} node={data} />}
      <Section title="Claimed and measured">
        <div className="card space-y-3 p-4">
          <BulletChart name="compute" unit="TFLOPS" claimed={data.claimed.tflops} measured={data.measured.tflops} />
          {data.models.map(({ id, claimed, measured }) => (
            <BulletChart key={id} name={id} unit="tok/s" claimed={claimed?.decode_tps ?? null} measured={measured?.decode_tps ?? null} />
          ))}
        </div>
      </Section>
      <Section title="Models">
        <DataTable
          id="node-models"
          rows={data.models}
          columns={COLUMNS}
          rowKey={(row) => row.id}
          empty={
            <EmptyState title="No model yet">
              <p className="text-muted">The agent looks for a model server on its machine from time to time. Start one there:</p>
              <CopyableText label="serve a model" text="ollama serve" />
            </EmptyState>
          }
        />
      </Section>
      <Section title="Uptime">
        <div className="card overflow-x-auto p-4">
          <UptimeCalendar days={uptime.data?.data ?? []} />
        </div>
      </Section>
      <Section title="Reputation">
        <ErrorNotice error={reputation.error} />
        {reputation.data && <Reputation reputation={reputation.data} />}
      </Section>
      <Section title="Trust">
        <ErrorNotice error={trust.error} />
        {trust.data && <Trust trust={trust.data} />}
      </Section>
      {data.yours && (
        <Section title="Leases">
          <Leases node={data.id} />
        </Section>
      )}
      {data.yours && (
        <Section title="Jobs">
          <NodeJobs id={data.id} />
        </Section>
      )}
      <Section title="Why it gets jobs, or none">
        <ErrorNotice error={report.error} />
        {report.data && <MatchReport report={report.data} />}
        {!maySeeReport && <p className="text-muted">The owner of the node sees here how it fared in the last matches, and why it lost some.</p>}
      </Section>
    </Page>
  );
}

function NodeStats({ node }: { node: NodeInfo }) {
  const jobs = node.jobs_done + node.jobs_failed;
  return (
    <Stats>
      <Stat name="GPU">{gpuText(node)}</Stat>
      <Stat name="Memory">{gb(node.claimed.vram_bytes)}</Stat>
      <Stat name="Jobs now" unit={`of ${node.slots}`}>
        {count(node.in_flight)}
      </Stat>
      <Stat name="Round trip">{ms(node.rtt_ms)}</Stat>
      <Stat name="Price">{priceText(node)}</Stat>
      <Stat name="Succeeded" hint="Since this gateway started">
        {jobs ? percent(node.jobs_done / jobs) : "–"}
      </Stat>
      <Stat name="Region">{node.region}</Stat>
      <Stat name="Model server">{node.backend}</Stat>
      <Stat name="Agent">{node.agent_version}</Stat>
      <Stat name="Queued there">{count(node.queued)}</Stat>
      <Stat name="Jobs done">{count(node.jobs_done)}</Stat>
      <Stat name="Last seen">
        <Time at={node.last_seen_at} />
      </Stat>
    </Stats>
  );
}

const COLUMNS: Column<NodeModel>[] = [
  { name: "Model", cell: (row) => row.id, sortBy: (row) => row.id },
  { name: "State", cell: (row) => row.state.replace("_", " "), sortBy: (row) => row.state },
  { name: "Quantization", cell: (row) => row.quantization ?? "–" },
  { name: "Context", cell: (row) => (row.context_length ? count(row.context_length) : "–"), isNumber: true },
  { name: "First token", cell: (row) => (row.measured ? ms(row.measured.first_token_s * 1000) : "–"), isNumber: true },
  { name: "Prefill", cell: (row) => (row.measured ? `${digits(row.measured.prefill_tps)} tok/s` : "–"), isNumber: true },
  { name: "Decode", cell: (row) => (row.measured ? `${digits(row.measured.decode_tps)} tok/s` : "–"), isNumber: true },
  {
    name: "Price per 1M, in / out",
    cell: ({ price }) => (
      <span title={price.notice ?? price.completion_derivation}>
        {usd(price.prompt_usd_per_mtok)} / {usd(price.completion_usd_per_mtok)}
      </span>
    ),
    isNumber: true,
  },
];
