import { useCalendar, useMe, useNode, useReputation, useWhy } from "@/api/queries";
import type { Node as NodeShape, NodeModel } from "@/api/types";
import { count, digits, gb, ms, percent, usd } from "@/lib/format";
import { CopyLine } from "@/parts/CopyLine";
import { DataTable, type Column } from "@/parts/DataTable";
import { Empty, ErrorNote } from "@/parts/Note";
import { Page, Section } from "@/parts/Page";
import { Stat, Stats } from "@/parts/Stat";
import { StateMark } from "@/parts/StateMark";
import { Time } from "@/parts/Time";
import { Bullet } from "./node/Bullet";
import { Calendar } from "./node/Calendar";
import { Gauges } from "./node/Gauges";
import { Jobs } from "./node/Jobs";
import { Reputation } from "./node/Reputation";
import { WhyNot } from "./node/WhyNot";

export default function Node({ id }: { id: string }) {
  const [node, calendar, me, reputation] = [useNode(id), useCalendar(id), useMe(), useReputation(id)];
  const maySeeWhy = Boolean(node.data && (node.data.yours || me.data?.role === "operator"));
  const why = useWhy(maySeeWhy ? id : null);
  if (!node.data)
    return (
      <Page title="Node">
        <ErrorNote error={node.error} />
      </Page>
    );
  const { data } = node;
  return (
    <Page title={data.name} lead={<span className="num break-all">{data.id}</span>} actions={<StateMark state={data.state} />}>
      <Facts node={data} />
      {data.paused && <p className="text-suspect">Paused: {data.paused}</p>}
      {data.sensors && <Gauges sensors={data.sensors} node={data} />}
      <Section title="Claimed against measured">
        <div className="card space-y-3 p-4">
          <Bullet name="compute" unit="TFLOPS" claimed={data.claimed.tflops} measured={data.measured.tflops} />
          {data.models.map((model) => (
            <Bullet
              key={model.id}
              name={model.id}
              unit="tok/s"
              claimed={model.claimed?.decode_tps ?? null}
              measured={model.measured?.decode_tps ?? null}
            />
          ))}
        </div>
      </Section>
      <Section title="Models">
        <DataTable
          id="node-models"
          rows={data.models}
          columns={COLUMNS}
          rowKey={(row) => row.id}
          plain={(row) => ({ ...row })}
          empty={
            <Empty title="No model yet">
              <p className="text-muted">The node asks its model server again and again. Start one beside it:</p>
              <CopyLine label="serve a model" text="ollama serve" />
            </Empty>
          }
        />
      </Section>
      <Section title="Uptime">
        <div className="card overflow-x-auto p-4">
          <Calendar days={calendar.data?.data ?? []} />
        </div>
      </Section>
      <Section title="Reputation">
        <ErrorNote error={reputation.error} />
        {reputation.data && <Reputation reputation={reputation.data} />}
      </Section>
      {data.yours && (
        <Section title="Jobs">
          <Jobs id={data.id} />
        </Section>
      )}
      <Section title="Why it gets jobs, or none">
        {maySeeWhy ? (
          <>
            <ErrorNote error={why.error} />
            {why.data && <WhyNot why={why.data} />}
          </>
        ) : (
          <p className="text-muted">Its owner sees how it fared in the last matches, and by what it lost.</p>
        )}
      </Section>
    </Page>
  );
}

function Facts({ node }: { node: NodeShape }) {
  const tried = node.jobs_done + node.jobs_failed;
  return (
    <Stats>
      <Stat name="GPU">{`${node.gpu_count > 1 ? `${node.gpu_count}× ` : ""}${node.gpu}`}</Stat>
      <Stat name="Memory">{gb(node.claimed.vram_bytes)}</Stat>
      <Stat name="Jobs now" unit={`of ${node.slots}`}>
        {count(node.in_flight)}
      </Stat>
      <Stat name="Round trip">{ms(node.rtt_ms)}</Stat>
      <Stat name="Price">{node.claimed.hourly_usd === null ? "by the token" : `${usd(node.claimed.hourly_usd)}/h`}</Stat>
      <Stat name="Succeeded" hint="Since this gateway started">
        {tried ? percent(node.jobs_done / tried) : "–"}
      </Stat>
      <Stat name="Region">{node.region}</Stat>
      <Stat name="Model server">{node.backend}</Stat>
      <Stat name="Agent">{node.agent_version}</Stat>
      <Stat name="Waiting there">{count(node.queued)}</Stat>
      <Stat name="Jobs done">{count(node.jobs_done)}</Stat>
      <Stat name="Seen">
        <Time at={node.last_seen_at} />
      </Stat>
    </Stats>
  );
}

const COLUMNS: Column<NodeModel>[] = [
  { name: "Model", cell: (row) => row.id, by: (row) => row.id },
  { name: "State", cell: (row) => row.state.replace("_", " "), by: (row) => row.state },
  { name: "Quantization", cell: (row) => row.quantization ?? "–" },
  { name: "Context", cell: (row) => (row.context_length ? count(row.context_length) : "–"), isNumber: true },
  { name: "First token", cell: (row) => (row.measured ? ms(row.measured.ttft_s * 1000) : "–"), isNumber: true },
  { name: "Reads", cell: (row) => (row.measured ? `${digits(row.measured.prefill_tps)} tok/s` : "–"), isNumber: true },
  { name: "Writes", cell: (row) => (row.measured ? `${digits(row.measured.decode_tps)} tok/s` : "–"), isNumber: true },
  {
    name: "Price per 1M, in / out",
    cell: (row) => (
      <span title={row.price.completion_derivation ?? undefined}>
        {usd(row.price.prompt_usd_per_mtok)} / {usd(row.price.completion_usd_per_mtok)}
      </span>
    ),
    isNumber: true,
  },
];
