import { useMemo } from "react";
import { useHistory, useNetwork } from "@/api/queries";
import type { HistoryFigures, HistoryPoint, NetworkModel } from "@/api/schema";
import { DataTable, type Column } from "@/components/DataTable";
import { JoinHint } from "@/components/JoinHint";
import { EmptyState, ErrorNotice } from "@/components/Notice";
import { Page } from "@/components/Page";
import { Sparkline } from "@/components/Sparkline";
import { count, digits, ms, percent, usd } from "@/lib/format";

const HOURS = 24;
const HOUR_S = 3_600;

interface Row {
  model: NetworkModel;
  /** Over the last 24 hours. */
  figures: HistoryFigures | undefined;
  /** The share of each of the last 24 hours in which a node served the model. */
  upByHour: (number | null)[];
}

export default function Models() {
  const [network, history] = [useNetwork(), useHistory("model", "24h")];
  const rows = useMemo(() => {
    const points = Map.groupBy(history.data?.data ?? [], (point) => point.name);
    return (network.data?.models ?? []).map(
      (model): Row => ({ model, figures: history.data?.totals[model.id], upByHour: upByHour(points.get(model.id) ?? []) }),
    );
  }, [network.data, history.data]);
  return (
    <Page title="Models" lead="The models that nodes serve now. Times and speeds are those of the last 24 hours, as clients saw them.">
      <ErrorNotice error={network.error} />
      {network.data && (
        <DataTable
          id="models"
          rows={rows}
          columns={COLUMNS}
          rowKey={(row) => row.model.id}
          toDownload={({ model, figures }) => ({ ...model, ...figures, nodes: model.nodes })}
          empty={
            <EmptyState title="No node serves a model">
              <JoinHint />
            </EmptyState>
          }
        />
      )}
    </Page>
  );
}

function upByHour(points: HistoryPoint[]): (number | null)[] {
  const thisHour = Math.floor(Date.now() / 1000 / HOUR_S) * HOUR_S;
  const upAt = new Map(points.map((point) => [point.at, point.up]));
  return Array.from({ length: HOURS }, (_, at) => upAt.get(thisHour - (HOURS - 1 - at) * HOUR_S) ?? null);
}

/** Generic: the model's template knows none, so calls are made by a schema. */
function toolsOf(model: NetworkModel): string {
  if (model.capabilities.includes("tools_generic")) return "tools: generic";
  return model.capabilities.includes("tools") ? "tools" : "no tools";
}

const COLUMNS: Column<Row>[] = [
  {
    name: "Model",
    cell: ({ model }) => (
      <span id={encodeURIComponent(model.id)}>
        <span className="font-semibold break-all">{model.id}</span>
        <span className="small block text-muted">
          {model.quantizations.join(", ") || "quantization not reported"} ·{" "}
          {model.context_length ? `${count(model.context_length)} tokens of context` : "context not reported"} ·{" "}
          {toolsOf(model)}
        </span>
      </span>
    ),
    sortBy: ({ model }) => model.id,
  },
  { name: "Nodes", cell: ({ model }) => count(model.nodes), sortBy: ({ model }) => model.nodes, isNumber: true },
  { name: "Warm", cell: ({ model }) => count(model.warm), sortBy: ({ model }) => model.warm, isNumber: true },
  {
    name: "First token p50 / p95",
    cell: ({ figures }) => `${ms(figures?.first_token_p50_ms)} / ${ms(figures?.first_token_p95_ms)}`,
    sortBy: ({ figures }) => figures?.first_token_p50_ms ?? Infinity,
    isNumber: true,
  },
  {
    name: "Tokens/s p50 / p5",
    cell: ({ figures }) => (figures?.speed_p50_tps ? `${digits(figures.speed_p50_tps)} / ${digits(figures.speed_p5_tps ?? 0)}` : "–"),
    sortBy: ({ figures }) => figures?.speed_p50_tps ?? 0,
    isNumber: true,
  },
  {
    name: "Price per 1M, in / out",
    cell: ({ model: { prompt_usd_per_mtok: prompt, completion_usd_per_mtok: completion } }) => (
      <span title={`Medians. Tokens out cost from ${usd(completion.low)} to ${usd(completion.high)}.`}>
        {usd(prompt.median)} / {usd(completion.median)}
      </span>
    ),
    sortBy: ({ model }) => Number(model.completion_usd_per_mtok.median),
    isNumber: true,
  },
  { name: "Up, 24 h", cell: ({ upByHour }) => <Uptime byHour={upByHour} /> },
];

function Uptime({ byHour }: { byHour: (number | null)[] }) {
  const hours = byHour.filter((up) => up !== null);
  const mean = hours.length ? hours.reduce((sum, up) => sum + up, 0) / hours.length : null;
  if (hours.length < 2) return <span className="num text-muted">{mean === null ? "–" : `${percent(mean)} so far`}</span>;
  return (
    <span className="text-online">
      <Sparkline values={byHour} max={1} label={`Up ${percent(mean)} of the hours on record`} />
    </span>
  );
}
