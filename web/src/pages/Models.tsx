import { useMemo } from "react";
import { useHistory, useNetwork } from "@/api/queries";
import type { NetworkModel, Point } from "@/api/types";
import { count, digits, ms, percent, usd } from "@/lib/format";
import { DataTable, type Column } from "@/parts/DataTable";
import { JoinHint } from "@/parts/JoinHint";
import { Empty, ErrorNote } from "@/parts/Note";
import { Page } from "@/parts/Page";
import { Spark } from "@/parts/Spark";

const HOURS = 24;

type Line = NetworkModel & {
  firstP50: number | null;
  firstP95: number | null;
  speedP50: number | null;
  speedP5: number | null;
  up: (number | null)[];
  jobs: number;
};

export default function Models() {
  const [network, history] = [useNetwork(), useHistory("model", "24h")];
  const lines = useMemo(() => {
    const points = Map.groupBy(history.data?.data ?? [], (point) => point.name);
    return (network.data?.models ?? []).map((model): Line => {
      const total = history.data?.totals[model.id];
      return {
        ...model,
        firstP50: total?.first_token_p50_ms ?? null,
        firstP95: total?.first_token_p95_ms ?? null,
        speedP50: total?.speed_p50_tps ?? null,
        speedP5: total?.speed_p5_tps ?? null,
        up: byHour(points.get(model.id) ?? []),
        jobs: total?.jobs ?? 0,
      };
    });
  }, [network.data, history.data]);
  return (
    <Page title="Models" lead="What can be asked right now. Times and speeds are those of the last 24 hours, as clients saw them.">
      <ErrorNote error={network.error} />
      {network.data && (
        <DataTable
          id="models"
          rows={lines}
          columns={COLUMNS}
          rowKey={(row) => row.id}
          plain={({ up: _, ...row }) => ({ ...row })}
          empty={
            <Empty title="No node serves a model">
              <JoinHint />
            </Empty>
          }
        />
      )}
    </Page>
  );
}

function byHour(points: Point[]): (number | null)[] {
  const hour = Math.floor(Date.now() / 3_600_000) * 3_600;
  const known = new Map(points.map((point) => [point.at, point.up]));
  return Array.from({ length: HOURS }, (_, at) => known.get(hour - (HOURS - 1 - at) * 3_600) ?? null);
}

const COLUMNS: Column<Line>[] = [
  {
    name: "Model",
    cell: (row) => (
      <span id={encodeURIComponent(row.id)}>
        <span className="font-semibold break-all">{row.id}</span>
        <span className="small block text-muted">
          {row.quantizations.join(", ") || "quantization not told"} · {row.context_length ? `${count(row.context_length)} tokens of context` : "context not told"}
        </span>
      </span>
    ),
    by: (row) => row.id,
  },
  { name: "Nodes", cell: (row) => count(row.nodes), by: (row) => row.nodes, isNumber: true },
  { name: "Warm", cell: (row) => count(row.warm), by: (row) => row.warm, isNumber: true },
  {
    name: "First token p50 / p95",
    cell: (row) => `${ms(row.firstP50)} / ${ms(row.firstP95)}`,
    by: (row) => row.firstP50 ?? Infinity,
    isNumber: true,
  },
  {
    name: "Tokens/s p50 / p5",
    cell: (row) => (row.speedP50 === null ? "–" : `${digits(row.speedP50)} / ${digits(row.speedP5 ?? 0)}`),
    by: (row) => row.speedP50 ?? 0,
    isNumber: true,
  },
  {
    name: "Price per 1M, in / out",
    cell: (row) => (
      <span title={`from ${usd(row.completion_usd_per_mtok.low)} to ${usd(row.completion_usd_per_mtok.high)} for what is written`}>
        {usd(row.prompt_usd_per_mtok.median)} / {usd(row.completion_usd_per_mtok.median)}
      </span>
    ),
    by: (row) => Number(row.completion_usd_per_mtok.median),
    isNumber: true,
  },
  {
    name: "Up, 24 h",
    cell: (row) => {
      const hours = row.up.filter((up) => up !== null);
      const mean = hours.length ? hours.reduce((sum, up) => sum + up, 0) / hours.length : null;
      if (hours.length < 2) return <span className="num text-muted">{mean === null ? "–" : `${percent(mean)} so far`}</span>;
      return (
        <span className="text-online">
          <Spark values={row.up} max={1} label={`Up ${percent(mean)} of the hours known`} />
        </span>
      );
    },
  },
];
