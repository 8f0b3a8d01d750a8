import { useQuery } from "@tanstack/react-query";
import { Link, useLocation } from "wouter";
import { api } from "@/api/client";
import { allPages } from "@/api/pages";
import type { Node, NodeList } from "@/api/schema";
import { DataTable, type Column } from "@/components/DataTable";
import { JoinHint } from "@/components/JoinHint";
import { NodeStateBadge } from "@/components/NodeStateBadge";
import { EmptyState, ErrorNotice } from "@/components/Notice";
import { Page } from "@/components/Page";
import { Time } from "@/components/Time";
import { count, digits, gb, shortId } from "@/lib/format";
import { useQueryText } from "@/lib/urlState";
import { formatRelaxation } from "@/match/relaxation";
import { gpuText, priceText } from "./node/nodeText";

export default function Nodes() {
  const [policy, setPolicy] = useQueryText("q");
  const path = policy ? `/v1/nodes?q=${encodeURIComponent(policy)}` : "/v1/nodes";
  const nodes = useQuery({
    queryKey: ["all", path],
    queryFn: ({ signal }) => allPages(path, (page) => api<NodeList>(page, { signal })),
    refetchInterval: 3_000,
    placeholderData: (before) => before,
    retry: false,
  });
  const [, navigate] = useLocation();
  return (
    <Page title="Nodes" lead="Every node, with what it claims and what was measured.">
      <label className="block max-w-xl space-y-1">
        <span className="small text-muted">Which nodes</span>
        <input
          className="field num"
          placeholder="region=EU gpu_class>=rtx24 max_price=0.30 sort=price"
          spellCheck={false}
          defaultValue={policy}
          onKeyDown={(event) => event.key === "Enter" && setPolicy(event.currentTarget.value)}
          onBlur={(event) => setPolicy(event.target.value)}
        />
      </label>
      <ErrorNotice error={nodes.error} />
      {nodes.data && <FilterSummary nodes={nodes.data} />}
      {nodes.data && (
        <DataTable
          id="nodes"
          rows={nodes.data.data}
          columns={COLUMNS}
          rowKey={(row) => row.id}
          onOpen={(row) => navigate(`/nodes/${row.id}`)}
          empty={
            <EmptyState title={policy ? "No node matches this policy" : "No node has joined yet"}>
              {policy ? <p className="text-muted">Loosen it as the line above says, or empty the field to see all nodes.</p> : <JoinHint />}
            </EmptyState>
          }
        />
      )}
    </Page>
  );
}

function FilterSummary({ nodes: { data, total, allowed, funnel, nearest_relaxations: relaxations } }: { nodes: NodeList }) {
  if (!funnel) return null;
  return (
    <p className="small text-muted">
      {count(allowed ?? data.length)} of {count(total ?? 0)} nodes: {funnel.map((step) => `${step.filter} removed ${step.dropped}`).join(", ") || "none removed"}
      {relaxations?.length ? `. Nearest change: ${relaxations.map(formatRelaxation).join("; ")}` : ""}
    </p>
  );
}

function bestTps(node: Node): number {
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
        <span className="num small block text-muted">{shortId(row.id, 12)}</span>
      </>
    ),
    sortBy: (row) => row.name,
  },
  { name: "State", cell: (row) => <NodeStateBadge state={row.state} />, sortBy: (row) => row.state },
  { name: "Region", cell: (row) => row.region, sortBy: (row) => row.region },
  { name: "GPU", cell: gpuText, sortBy: (row) => row.gpu },
  { name: "Memory", cell: (row) => gb(row.claimed.vram_bytes), sortBy: (row) => row.claimed.vram_bytes, isNumber: true },
  { name: "Models", cell: (row) => row.models.map((model) => model.id).join(", ") || "–" },
  { name: "Measured", cell: (row) => (bestTps(row) ? `${digits(bestTps(row))} tok/s` : "–"), sortBy: bestTps, isNumber: true },
  { name: "Price", cell: priceText, sortBy: (row) => Number(row.claimed.hourly_usd ?? -1), isNumber: true },
  { name: "Jobs", cell: (row) => `${count(row.in_flight)} / ${count(row.slots)}`, sortBy: (row) => row.in_flight, isNumber: true },
  { name: "Last seen", cell: (row) => <Time at={row.last_seen_at} />, sortBy: (row) => row.last_seen_at ?? 0 },
];
