import { Link, useLocation } from "wouter";
import { useQuery } from "@tanstack/react-query";
import { api } from "@/api/client";
import type { List, Node } from "@/api/types";
import { useAsked } from "@/lib/address";
import { count, digits, gb, usd } from "@/lib/format";
import { readable } from "@/match/relaxation";
import { DataTable, type Column } from "@/parts/DataTable";
import { JoinHint } from "@/parts/JoinHint";
import { Empty, ErrorNote } from "@/parts/Note";
import { Page } from "@/parts/Page";
import { StateMark } from "@/parts/StateMark";
import { Time } from "@/parts/Time";

interface Reply extends List<Node> {
  total?: number;
  funnel?: { filter: string; dropped: number; left: number }[];
  nearest_relaxations?: string[];
}

export default function Nodes() {
  const [asked, setAsked] = useAsked("q");
  const path = asked ? `/v1/nodes?q=${encodeURIComponent(asked)}` : "/v1/nodes";
  const nodes = useQuery({
    queryKey: [path],
    queryFn: ({ signal }) => api<Reply>(path, { signal }),
    refetchInterval: 3_000,
    placeholderData: (before) => before,
    retry: false,
  });
  const [, go] = useLocation();
  return (
    <Page title="Nodes" lead="Every node, with what it claims and what was measured.">
      <label className="block max-w-xl space-y-1">
        <span className="small text-muted">Which nodes</span>
        <input
          className="field num"
          placeholder="region=EU gpu_class>=rtx24 max_price=0.30 sort=price"
          spellCheck={false}
          defaultValue={asked}
          onKeyDown={(event) => event.key === "Enter" && setAsked(event.currentTarget.value)}
          onBlur={(event) => setAsked(event.target.value)}
        />
      </label>
      <ErrorNote error={nodes.error} />
      {nodes.data?.funnel && (
        <p className="small text-muted">
          {count(nodes.data.data.length)} of {count(nodes.data.total ?? 0)}:{" "}
          {nodes.data.funnel.map((step) => `${step.filter} dropped ${step.dropped}`).join(", ") || "nothing dropped"}
          {nodes.data.nearest_relaxations?.length ? `. Nearest: ${nodes.data.nearest_relaxations.map(readable).join("; ")}` : ""}
        </p>
      )}
      {nodes.data && (
        <DataTable
          id="nodes"
          rows={nodes.data.data}
          columns={COLUMNS}
          rowKey={(row) => row.id}
          plain={(row) => ({ ...row })}
          onOpen={(row) => go(`/nodes/${row.id}`)}
          empty={
            <Empty title={asked ? "No node is like that" : "No node has joined yet"}>
              {asked ? <p className="text-muted">Loosen it as the line above says, or empty the field to see all.</p> : <JoinHint />}
            </Empty>
          }
        />
      )}
    </Page>
  );
}

function fastest(node: Node): number {
  return Math.max(0, ...node.models.map((model) => model.measured?.decode_tps ?? 0));
}

const COLUMNS: Column<Node>[] = [
  {
    name: "Node",
    cell: (row) => (
      <>
        <Link href={`/nodes/${row.id}`} className="font-semibold hover:underline">
          {row.name}
        </Link>
        {row.yours && <span className="small text-volt"> yours</span>}
        <span className="num small block text-muted">{row.id.slice(0, 12)}…</span>
      </>
    ),
    by: (row) => row.name,
  },
  { name: "State", cell: (row) => <StateMark state={row.state} />, by: (row) => row.state },
  { name: "Region", cell: (row) => row.region, by: (row) => row.region },
  { name: "GPU", cell: (row) => `${row.gpu_count > 1 ? `${row.gpu_count}× ` : ""}${row.gpu}`, by: (row) => row.gpu },
  { name: "Memory", cell: (row) => gb(row.claimed.vram_bytes), by: (row) => row.claimed.vram_bytes, isNumber: true },
  { name: "Models", cell: (row) => row.models.map((model) => model.id).join(", ") || "–" },
  { name: "Measured", cell: (row) => (fastest(row) ? `${digits(fastest(row))} tok/s` : "–"), by: fastest, isNumber: true },
  { name: "Price", cell: (row) => (row.claimed.hourly_usd === null ? "by the token" : `${usd(row.claimed.hourly_usd)}/h`), by: (row) => Number(row.claimed.hourly_usd ?? -1), isNumber: true },
  { name: "Jobs", cell: (row) => `${count(row.in_flight)} / ${count(row.slots)}`, by: (row) => row.in_flight, isNumber: true },
  { name: "Seen", cell: (row) => <Time at={row.last_seen_at} />, by: (row) => row.last_seen_at ?? 0 },
];
