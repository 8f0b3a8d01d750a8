import { useMemo } from "react";
import type { MarketProvider, MarketTables } from "@/api/schema";
import { DataTable, type Column } from "@/components/DataTable";
import { EmptyState } from "@/components/Notice";
import { shortId, usd } from "@/lib/format";
import { ProviderName, useProviderNodes } from "@/market/names";
import { StateBadge } from "@/market/StateBadge";

/** Registered providers with their claims and bonds. */
export function ProviderTable({ providers, tables }: { providers: MarketProvider[]; tables: MarketTables | undefined }) {
  const nodeOf = useProviderNodes();
  const columns = useMemo(() => providerColumns(tables, (provider) => nodeOf(provider) !== undefined), [tables, nodeOf]);
  return (
    <DataTable
      id="providers"
      rows={providers}
      columns={columns}
      rowKey={(row) => row.id}
      empty={
        <EmptyState title="No provider has registered">
          <p className="text-muted">A node takes part with an address on the chain and a bond. Its owner registers it on the node's page.</p>
        </EmptyState>
      }
    />
  );
}

function providerColumns(tables: MarketTables | undefined, isNamed: (provider: string) => boolean): Column<MarketProvider>[] {
  const nameOf = (rows: { id: number; name: string }[] | undefined, id: number) => rows?.find((row) => row.id === id)?.name;
  return [
    {
      name: "Provider",
      cell: (row) => (
        <>
          <ProviderName of={row.id} />
          {isNamed(row.id) && (
            <span className="num small block text-muted" title={row.id}>
              {shortId(row.id)}
            </span>
          )}
        </>
      ),
    },
    { name: "Status", cell: (row) => <StateBadge state={row.status} />, sortBy: (row) => row.status },
    {
      name: "GPU, as claimed",
      cell: (row) => (row.gpu_units ? `${row.gpu_units} × ${nameOf(tables?.gpu_models, row.gpu_model) ?? "another card"}${row.vram_gb ? `, ${row.vram_gb} GB` : ""}` : "no GPU"),
      sortBy: (row) => row.gpu_model,
    },
    { name: "Where", cell: (row) => nameOf(tables?.countries, row.country) ?? nameOf(tables?.zones, row.zone) ?? "–", sortBy: (row) => row.country },
    { name: "Tier", cell: (row) => nameOf(tables?.tiers, row.tier) ?? "–", sortBy: (row) => row.tier },
    {
      name: "Price hint",
      cell: (row) => <span title="What it wrote into the registry; its bids are its own">{Number(row.price_hint_usd) ? `${usd(row.price_hint_usd)}/h` : "–"}</span>,
      sortBy: (row) => Number(row.price_hint_usd),
      isNumber: true,
    },
    { name: "Free bond", cell: (row) => usd(row.free_usd), sortBy: (row) => Number(row.free_usd), isNumber: true },
    { name: "Locked", cell: (row) => usd(row.locked_usd), sortBy: (row) => Number(row.locked_usd), isNumber: true },
  ];
}
