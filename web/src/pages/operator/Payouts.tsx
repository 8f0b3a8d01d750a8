import { useMutation, useQueryClient } from "@tanstack/react-query";
import { api } from "@/api/client";
import { useGet } from "@/api/queries";
import type { PayoutBatch, PayoutBatchCreation, PayoutBatchList } from "@/api/schema";
import { Button } from "@/components/Button";
import { DataTable, type Column } from "@/components/DataTable";
import { ErrorNotice, Loading } from "@/components/Notice";
import { Section } from "@/components/Page";
import { Time } from "@/components/Time";
import { usd } from "@/lib/format";

const PATH = "/v1/payouts/batches";

const COLUMNS: Column<PayoutBatch>[] = [
  { name: "Batch", cell: (row) => <span className="num">{row.epoch}</span>, sortBy: (row) => row.epoch },
  { name: "Made", cell: (row) => <Time at={row.created_at} />, sortBy: (row) => row.created_at },
  { name: "Owners", cell: (row) => row.leaves, isNumber: true },
  { name: "Added", cell: (row) => usd(Number(row.added_usd)), isNumber: true },
  { name: "State", cell: (row) => (row.state === "posted" ? "on the chain" : "ready for the chain") },
];

export function Payouts() {
  const batches = useGet<PayoutBatchList>(PATH);
  const queries = useQueryClient();
  const making = useMutation({
    mutationFn: () => api<PayoutBatchCreation>(PATH, { body: {} }),
    onSettled: () => queries.invalidateQueries({ queryKey: [PATH] }),
  });
  return (
    <Section
      title="Payouts"
      aside={
        <Button onClick={() => making.mutate()} disabled={making.isPending}>
          Make a batch now
        </Button>
      }
    >
      <ErrorNotice error={batches.error ?? making.error} />
      {making.data && !making.data.made && <p role="status">Nobody has earned anything since the last batch, so none was made.</p>}
      {batches.isPending && <Loading />}
      {batches.data && (
        <DataTable id="batches" rows={batches.data.data} columns={COLUMNS} rowKey={(row) => String(row.epoch)} empty={<p className="text-muted">No batch yet: nothing was payable so far.</p>} />
      )}
    </Section>
  );
}
