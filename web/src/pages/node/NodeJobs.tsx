import { useNodeJobs } from "@/api/queries";
import type { AttemptEarnings } from "@/api/schema";
import { DataTable, type Column } from "@/components/DataTable";
import { EmptyState, ErrorNotice } from "@/components/Notice";
import { Time } from "@/components/Time";
import { count, ms, usd } from "@/lib/format";
import { Outcome } from "@/match/Outcome";

/** The node's attempts at jobs and what each earned, for its owner. */
export function NodeJobs({ id }: { id: string }) {
  const jobs = useNodeJobs(id);
  return (
    <>
      <ErrorNotice error={jobs.error} />
      {jobs.data && (
        <DataTable
          id="jobs"
          rows={jobs.data.data}
          columns={COLUMNS}
          rowKey={(row) => `${row.job_id}-${row.position}`}
          empty={
            <EmptyState title="No job yet">
              <p className="text-muted">The node gets one as soon as it is the best choice for a request. How it fared so far is shown below.</p>
            </EmptyState>
          }
        />
      )}
    </>
  );
}

const COLUMNS: Column<AttemptEarnings>[] = [
  { name: "Time", cell: (row) => <Time at={Date.parse(row.opened_at) / 1000} />, sortBy: (row) => row.opened_at },
  { name: "Model", cell: (row) => row.model, sortBy: (row) => row.model },
  { name: "Outcome", cell: (row) => <Outcome of={row.outcome} />, sortBy: (row) => row.outcome },
  { name: "Tokens in / out", cell: (row) => `${count(row.prompt_tokens)} / ${count(row.completion_tokens)}`, isNumber: true },
  {
    name: "First token",
    cell: (row) => (row.first_token_ms === null ? "in one piece" : ms(row.first_token_ms)),
    sortBy: (row) => row.first_token_ms ?? 0,
    isNumber: true,
  },
  { name: "Duration", cell: (row) => ms(row.duration_ms), sortBy: (row) => row.duration_ms, isNumber: true },
  { name: "Earned", cell: (row) => usd(earned(row)), sortBy: earned, isNumber: true },
];

function earned({ net_usd, net_promo_usd }: AttemptEarnings): number {
  return Number(net_usd) + Number(net_promo_usd);
}
