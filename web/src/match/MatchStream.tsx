import { useMemo } from "react";
import { Link, useLocation } from "wouter";
import { useMatches, useMe } from "@/api/queries";
import type { FeedMatch } from "@/feed/model";
import { useFeed } from "@/feed/useFeed";
import { count, ms } from "@/lib/format";
import { DataTable, type Column } from "@/parts/DataTable";
import { FirstQuestion } from "@/parts/FirstQuestion";
import { Empty } from "@/parts/Note";
import { Time } from "@/parts/Time";
import { Outcome } from "./Outcome";

type Line = FeedMatch & { mayOpen: boolean; mark: string };

/** Matches as they happen. Your own, and for operators all, open. */
export function MatchStream({ limit }: { limit: number }) {
  const { matches } = useFeed();
  const me = useMe();
  const own = useMatches(Boolean(me.data));
  const isOperator = me.data?.role === "operator";
  const [, go] = useLocation();
  const lines = useMemo(() => {
    const known = new Set((own.data?.data ?? []).map((match) => match.match_id));
    const mark = isOperator ? "" : " yours";
    return matches.slice(0, limit).map((match): Line => ({ ...match, mayOpen: known.has(match.id), mark: known.has(match.id) ? mark : "" }));
  }, [matches, own.data, limit, isOperator]);
  return (
    <DataTable
      id="matches"
      rows={lines}
      columns={COLUMNS}
      rowKey={(row) => row.id}
      plain={({ mayOpen: _, mark: __, ...row }) => ({ ...row })}
      onOpen={(row) => go(`/matching/${row.id}`)}
      empty={
        <Empty title="No match yet">
          <p className="text-muted">Ask something, and it shows here at once:</p>
          <FirstQuestion />
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
      <Link href={`/matching/${row.id}`} className={`num small ${row.mayOpen ? "link" : "text-muted"}`}>
        {row.id.slice(0, 14)}…{row.mark}
      </Link>
    ),
  },
  { name: "Model", cell: (row) => row.model },
  { name: "Size", cell: (row) => row.size },
  { name: "Could have it", cell: (row) => `${count(row.eligible)} of ${count(row.candidates)}`, isNumber: true },
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
