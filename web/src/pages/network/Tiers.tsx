import { useTiers } from "@/api/queries";
import type { TierTableRow } from "@/api/schema";
import { DataTable, type Column } from "@/components/DataTable";
import { ErrorNotice } from "@/components/Notice";
import { Section } from "@/components/Page";
import { capitalized, count, percent, usd } from "@/lib/format";

const PPM = 1_000_000;

/** The tiers of nodes: how many have each, and what it takes. */
export function Tiers() {
  const tiers = useTiers();
  return (
    <Section title="Tiers">
      <ErrorNotice error={tiers.error} />
      {tiers.data && <DataTable id="tiers" rows={tiers.data.data} columns={COLUMNS} rowKey={(row) => row.tier} empty={null} />}
      {tiers.data && (
        <p className="small text-muted">
          What it takes to get a tier, over {tiers.data.window_days} days; a node keeps it by somewhat less. Nothing of it is the node's own word.
        </p>
      )}
    </Section>
  );
}

const COLUMNS: Column<TierTableRow>[] = [
  { name: "Tier", cell: (row) => capitalized(row.tier) },
  { name: "Nodes", cell: (row) => count(row.nodes), isNumber: true },
  { name: "Days up", cell: (row) => (row.promote ? count(row.promote.days) : "–"), isNumber: true },
  { name: "Uptime", cell: (row) => (row.promote ? percent(row.promote.uptime_ppm / PPM) : "–"), isNumber: true },
  { name: "Jobs", cell: (row) => (row.promote ? count(row.promote.jobs) : "–"), isNumber: true },
  { name: "Finished", cell: (row) => (row.promote ? percent(row.promote.completion_ppm / PPM) : "–"), isNumber: true },
  { name: "Checks passed", cell: (row) => (row.promote ? count(row.promote.checks_passed) : "–"), isNumber: true },
  { name: "Bond", cell: (row) => (row.promote ? usd(row.promote.bond_micro / PPM) : "–"), isNumber: true },
  { name: "Auditor", cell: (row) => (row.promote?.attested ? "vouches" : "–") },
  { name: "Weight in rewards", cell: (row) => (row.weight_ppm / PPM).toFixed(2), isNumber: true },
];
