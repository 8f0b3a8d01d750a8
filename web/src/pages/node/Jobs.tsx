import { useNodeJobs } from "@/api/queries";
import type { EarningLine } from "@/api/types";
import { count, ms, usd } from "@/lib/format";
import { Outcome } from "@/match/Outcome";
import { DataTable, type Column } from "@/parts/DataTable";
import { Empty, ErrorNote } from "@/parts/Note";
import { Time } from "@/parts/Time";

/** What the node did, for its owner: its part of each job, and what that brought. */
export function Jobs({ id }: { id: string }) {
  const jobs = useNodeJobs(id);
  return (
    <>
      <ErrorNote error={jobs.error} />
      {jobs.data && (
        <DataTable
          id="jobs"
          rows={jobs.data.data}
          columns={COLUMNS}
          rowKey={(row) => `${row.job_id}-${row.opened_at}`}
          plain={(row) => ({ ...row })}
          empty={
            <Empty title="No job yet">
              <p className="text-muted">It gets one as soon as it is the best choice for a request. Below: how it fared so far.</p>
            </Empty>
          }
        />
      )}
    </>
  );
}

const COLUMNS: Column<EarningLine>[] = [
  { name: "When", cell: (row) => <Time at={Date.parse(row.opened_at) / 1000} />, by: (row) => row.opened_at },
  { name: "Model", cell: (row) => row.model, by: (row) => row.model },
  { name: "Outcome", cell: (row) => <Outcome of={row.outcome} />, by: (row) => row.outcome },
  { name: "Tokens in / out", cell: (row) => `${count(row.prompt_tokens)} / ${count(row.completion_tokens)}`, isNumber: true },
  { name: "First token", cell: (row) => (row.first_token_ms === null ? "in one piece" : ms(row.first_token_ms)), by: (row) => row.first_token_ms ?? 0, isNumber: true },
  { name: "Took", cell: (row) => ms(row.duration_ms), by: (row) => row.duration_ms, isNumber: true },
  { name: "Earned", cell: (row) => usd(Number(row.net_usd) + Number(row.net_promo_usd)), by: (row) => Number(row.net_usd), isNumber: true },
];
