import type { LeaseQuote, StandingOffer } from "@/api/schema";
import { DataTable, type Column } from "@/components/DataTable";
import { EmptyState } from "@/components/Notice";
import { count, duration, plural, shortId, usd } from "@/lib/format";
import { Detail, Details } from "@/match/Details";
import { formatRelaxation } from "@/match/relaxation";
import { changeText, filterText } from "./filterText";

/** What an order would meet and cost: who could serve it, for how much, and a cloud's price beside it. */
export function QuotePanel({ quote }: { quote: LeaseQuote }) {
  const [cloud] = quote.cloud_prices;
  return (
    <div className="space-y-3" data-testid="quote">
      <Details>
        <Detail name="Could serve it">
          {count(quote.able)} of {count(quote.providers)}
        </Detail>
        <Detail name="Offered">{quote.prices ? `${usd(quote.prices.least_usd)} to ${usd(quote.prices.dearest_usd)}/h` : "–"}</Detail>
        <Detail name="In a cloud">
          {cloud ? (
            <span title={`${cloud.cloud} ${cloud.instance}, ${cloud.as_of}: ${cloud.source}`}>
              {usd(cloud.hourly_usd)}/h <span className="small font-sans text-muted">{cloud.cloud}, each GPU</span>
            </span>
          ) : (
            "–"
          )}
        </Detail>
        <Detail name="Held as deposit">{quote.total_usd === null ? "–" : usd(quote.total_usd)}</Detail>
      </Details>
      <p className="small text-muted">
        {quote.max_hourly_usd !== null &&
          `No bid above ${usd(quote.max_hourly_usd)} an hour is taken${quote.max_hourly_source === "offers" ? ": 1.25 times the dearest offer that fits" : ""}. `}
        {quote.covers_s !== null && `At that price the deposit lasts ${duration(quote.covers_s)}, and no more is ever charged. `}
        {quote.cloud_note}
      </p>
      {quote.able === 0 && (
        <div className="space-y-2 rounded-md border border-suspect p-4" data-testid="nobody">
          <p className="font-semibold">Nobody could serve this order now</p>
          <ul className="small list-disc pl-5">
            {quote.funnel
              .filter(({ dropped }) => dropped > 0)
              .map(({ filter, dropped }) => (
                <li key={filter}>
                  {plural(dropped, "provider")}: {filterText(filter)}
                </li>
              ))}
            {quote.nearest_relaxations.map((line) => (
              <li key={line}>It would help: {changeText(formatRelaxation(line))}</li>
            ))}
          </ul>
        </div>
      )}
      {quote.offers.length > 0 && <DataTable id="offers" rows={quote.offers} columns={COLUMNS} rowKey={(row) => row.provider} empty={<EmptyState title="No offer" />} />}
      <ul className="small list-disc space-y-1 pl-5 text-muted">
        {quote.notes.map((note) => (
          <li key={note}>{note}</li>
        ))}
      </ul>
    </div>
  );
}

const COLUMNS: Column<StandingOffer>[] = [
  {
    name: "Provider",
    cell: (row) => (
      <span className="num small" title={row.provider}>
        {row.name ?? shortId(row.provider)}
      </span>
    ),
  },
  { name: "GPU", cell: (row) => (row.gpu_count ? `${row.gpu_count} × ${row.gpu ?? "other"}${row.vram_gb ? `, ${row.vram_gb} GB` : ""}` : "none") },
  { name: "Place", cell: (row) => row.place ?? "–" },
  { name: "Price", cell: (row) => `${usd(row.hourly_usd)}/h`, sortBy: (row) => Number(row.hourly_usd), isNumber: true },
  { name: "Free bond", cell: (row) => usd(row.free_bond_usd), sortBy: (row) => Number(row.free_bond_usd), isNumber: true },
];
