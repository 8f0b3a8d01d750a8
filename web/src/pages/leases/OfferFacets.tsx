import { useMemo, type ReactNode } from "react";
import { Link } from "wouter";
import { useMarketProviders, useMarketTables } from "@/api/queries";
import { DataTable, type Column } from "@/components/DataTable";
import { Field } from "@/components/Field";
import { EmptyState, ErrorNotice, Loading } from "@/components/Notice";
import { count, plural, usd } from "@/lib/format";
import { ProviderName } from "@/market/names";
import { narrowed, offersOf, optionsOf, type Choice, type FacetOption, type MachineOffer } from "./facets";

const SHOWN_MAX = 8;

interface Props {
  choice: Choice;
  onChoose: (name: "card" | "region", value: string) => void;
  /** The field of the highest price, which is one of the order's own. */
  price: ReactNode;
  /** Not once the order is quoted: then the offers that fit it are shown there. */
  hasTable: boolean;
}

/** The machines that are offered, by card, region and price. What is chosen becomes a condition of the order. */
export function OfferFacets({ choice, onChoose, price, hasTable }: Props) {
  const [providers, tables] = [useMarketProviders(), useMarketTables()];
  const offers = useMemo(() => (providers.data && tables.data ? offersOf(providers.data.data, tables.data) : null), [providers.data, tables.data]);
  const left = offers && narrowed(offers, choice);
  return (
    <fieldset className="space-y-3" data-testid="facets">
      <legend className="mb-2 font-semibold">Which machine</legend>
      <div className="grid gap-4 sm:grid-cols-3">
        <Facet label="Card" any="any, or none" options={offers ? optionsOf(offers, "card", choice) : []} value={choice.card} onChoose={(value) => onChoose("card", value)} />
        <Facet label="Region" any="anywhere" options={offers ? optionsOf(offers, "region", choice) : []} value={choice.region} onChoose={(value) => onChoose("region", value)} />
        {price}
      </div>
      {hasTable && (
        <div aria-live="polite" className="space-y-2">
          {!offers && ((providers.error ?? tables.error) ? <ErrorNotice error={providers.error ?? tables.error} /> : <Loading />)}
          {offers && left && (
            <>
              <p className="small text-muted" data-testid="offer-count">
                {count(left.length)} of {plural(offers.length, "provider")} by what they say of themselves; bids decide.{" "}
                {left.length > SHOWN_MAX && <>The {SHOWN_MAX} cheapest are shown, all are in the </>}
                {left.length > SHOWN_MAX && (
                  <Link href="/market" className="link">
                    market
                  </Link>
                )}
              </p>
              <DataTable id="machine-offers" rows={left.slice(0, SHOWN_MAX)} columns={COLUMNS} rowKey={(row) => row.provider} empty={<NoOffer hasAny={offers.length > 0} />} />
            </>
          )}
        </div>
      )}
    </fieldset>
  );
}

function NoOffer({ hasAny }: { hasAny: boolean }) {
  return (
    <EmptyState title={hasAny ? "No offer is left" : "Nobody offers a machine yet"}>
      <p className="text-muted">
        {hasAny ? "Choose another card or region, or a higher price." : "A node takes part once its owner registers it for leases, on the node's page."}
      </p>
    </EmptyState>
  );
}

interface FacetProps {
  label: string;
  any: string;
  options: FacetOption[];
  value: string;
  onChoose: (value: string) => void;
}

function Facet({ label, any, options, value, onChoose }: FacetProps) {
  return (
    <Field label={label}>
      <select className="field" value={value} onChange={(event) => onChoose(event.target.value)}>
        <option value="">{any}</option>
        {options.map((option) => (
          <option key={option.value} value={option.value}>
            {option.value} ({option.count})
          </option>
        ))}
      </select>
    </Field>
  );
}

const COLUMNS: Column<MachineOffer>[] = [
  { name: "Provider", cell: (row) => <ProviderName of={row.provider} /> },
  { name: "Card", cell: (row) => (row.units ? `${row.units} × ${row.card ?? "another card"}${row.vramGb ? `, ${row.vramGb} GB` : ""}` : "no GPU"), sortBy: (row) => row.card ?? "" },
  { name: "Region", cell: (row) => row.region ?? "–", sortBy: (row) => row.region ?? "" },
  { name: "Price", cell: (row) => (row.hourly === null ? "by bid" : `${usd(row.hourly)}/h`), sortBy: (row) => row.hourly ?? Infinity, isNumber: true },
];
