import { useMemo } from "react";
import { Link, useLocation } from "wouter";
import { useMatches, useMe } from "@/api/queries";
import type { FeedMatch } from "@/feed/model";
import { useFeed } from "@/feed/useFeed";
import { count, ms } from "@/lib/format";
import { CopyLine } from "@/parts/CopyLine";
import { DataTable, type Column } from "@/parts/DataTable";
import { Empty } from "@/parts/Note";
import { Time } from "@/parts/Time";
import { Outcome } from "./Outcome";

type Line = FeedMatch & { isYours: boolean };

/** Matches as they happen. Your own, and for operators all, open. */
export function MatchStream({ limit }: { limit: number }) {
  const { matches } = useFeed();
  const me = useMe();
  const own = useMatches(Boolean(me.data));
  const [, go] = useLocation();
  const lines = useMemo(() => {
    const yours = new Set((own.data?.data ?? []).map((match) => match.match_id));
    return matches.slice(0, limit).map((match): Line => ({ ...match, isYours: yours.has(match.id) }));
  }, [matches, own.data, limit]);
  return (
    <DataTable
      id="matches"
      rows={lines}
      columns={COLUMNS}
      rowKey={(row) => row.id}
      plain={({ isYours: _, ...row }) => ({ ...row })}
      onOpen={(row) => go(`/matching/${row.id}`)}
      empty={
        <Empty title="No match yet">
          <p className="text-muted">Ask something, and it shows here at once:</p>
          <CopyLine label="a first question" text="sparewatt chat MODEL 'Say hello'" />
        </Empty>
      }
    />
  );
}

const COLUMNS: Column<Line>[] = [
  { name: "When", cell: (row) => <Time at={row.at} /> },
  {
    name: "Match",
    cell: (row) => (
      <Link href={`/matching/${row.id}`} className={`num small ${row.isYours ? "link" : "text-muted"}`}>
        {row.id.slice(0, 14)}…{row.isYours ? " yours" : ""}
      </Link>
    ),
  },
  { name: "Model", cell: (row) => row.model },
  { name: "Size", cell: (row) => row.size },
  { name: "Nodes looked at", cell: (row) => `${count(row.eligible)} of ${count(row.candidates)}`, isNumber: true },
  { name: "Went to", cell: (row) => row.region ?? "–" },
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
