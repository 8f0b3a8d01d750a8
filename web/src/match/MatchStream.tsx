import { useMemo } from "react";
import { Link, useLocation } from "wouter";
import { useMatches, useMe } from "@/api/queries";
import type { FeedMatch } from "@/api/schema";
import { DataTable, type Column } from "@/components/DataTable";
import { FirstRequest } from "@/components/FirstRequest";
import { EmptyState } from "@/components/Notice";
import { Time } from "@/components/Time";
import { useFeed } from "@/feed/useFeed";
import { count, ms, shortId } from "@/lib/format";
import { Outcome } from "./Outcome";

type Row = FeedMatch & { isReadable: boolean; note: string };

/** The latest matches, live. Visitors can open their own, operators all. */
export function MatchStream({ limit }: { limit: number }) {
  const { matches } = useFeed();
  const me = useMe();
  const readable = useMatches(Boolean(me.data));
  const isOperator = me.data?.role === "operator";
  const [, navigate] = useLocation();
  const rows = useMemo(() => {
    const ids = new Set((readable.data?.data ?? []).map((match) => match.match_id));
    return matches.slice(0, limit).map((match): Row => {
      const isReadable = ids.has(match.id);
      return { ...match, isReadable, note: isReadable && !isOperator ? " yours" : "" };
    });
  }, [matches, readable.data, limit, isOperator]);
  return (
    <DataTable
      id="matches"
      rows={rows}
      columns={COLUMNS}
      rowKey={(row) => row.id}
      toDownload={({ isReadable: _, note: __, ...match }) => match}
      onOpen={(row) => navigate(`/matching/${row.id}`)}
      empty={
        <EmptyState title="No match yet">
          <p className="text-muted">Send a request, and it shows here at once:</p>
          <FirstRequest />
        </EmptyState>
      }
    />
  );
}

const COLUMNS: Column<Row>[] = [
  { name: "Time", cell: (row) => <Time at={row.at} /> },
  {
    name: "Match",
    cell: (row) => (
      <Link href={`/matching/${row.id}`} className={`num small ${row.isReadable ? "link" : "text-muted"}`}>
        {shortId(row.id, 14)}
        {row.note}
      </Link>
    ),
  },
  { name: "Model", cell: (row) => row.model },
  { name: "Size", cell: (row) => row.size },
  { name: "Eligible nodes", cell: (row) => `${count(row.eligible)} of ${count(row.candidates)}`, isNumber: true },
  { name: "Served in", cell: (row) => row.region ?? "–" },
  { name: "First token", cell: (row) => ms(row.first_token_ms), isNumber: true },
  {
    name: "Outcome",
    cell: (row) => (
      <>
        <Outcome of={row.outcome} />
        {row.moved > 0 && <span className="small text-suspect"> moved {row.moved}×</span>}
      </>
    ),
  },
];
