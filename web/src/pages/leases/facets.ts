// Offers of machines, narrowed by card, region and price: what each choice would leave. All of it is the providers' own word.
import type { MarketProvider, MarketTables } from "../../api/schema.ts";

export interface MachineOffer {
  provider: string;
  /** Null without a GPU. */
  card: string | null;
  units: number;
  vramGb: number;
  region: string | null;
  /** Null if it names none. */
  hourly: number | null;
}

export interface Choice {
  card: string;
  region: string;
  maxHourly: string;
}

export interface FacetOption {
  value: string;
  /** How many offers it would leave, with the other choices as they are. */
  count: number;
}

type Names = Pick<MarketTables, "countries" | "gpu_models">;
type Claims = Pick<MarketProvider, "id" | "status" | "gpu_units" | "gpu_model" | "vram_gb" | "country" | "price_hint_usd">;

/** Of providers that may bid, the cheapest first; those without a price last. */
export function offersOf(providers: Claims[], { countries, gpu_models }: Names): MachineOffer[] {
  const nameOf = (rows: { id: number; name: string }[], id: number) => rows.find((row) => row.id === id)?.name ?? null;
  const offers = providers
    .filter(({ status }) => status === "active")
    .map(({ id, gpu_units, gpu_model, vram_gb, country, price_hint_usd }) => ({
      provider: id,
      card: gpu_units ? nameOf(gpu_models, gpu_model) : null,
      units: gpu_units,
      vramGb: vram_gb,
      region: nameOf(countries, country),
      hourly: Number(price_hint_usd) || null,
    }));
  return offers.sort((a, b) => (a.hourly ?? Infinity) - (b.hourly ?? Infinity) || a.provider.localeCompare(b.provider));
}

/** An offer without a price stays: its bid may fit. */
export function narrowed(offers: MachineOffer[], { card, region, maxHourly }: Choice): MachineOffer[] {
  const most = Number(maxHourly) || Infinity;
  return offers.filter((offer) => (!card || offer.card === card) && (!region || offer.region === region) && (offer.hourly ?? 0) <= most);
}

/** The values of one facet, the most frequent first. The chosen one is always there. */
export function optionsOf(offers: MachineOffer[], facet: "card" | "region", choice: Choice): FacetOption[] {
  const counts = new Map<string, number>(choice[facet] ? [[choice[facet], 0]] : []);
  for (const offer of narrowed(offers, { ...choice, [facet]: "" })) {
    const value = offer[facet];
    if (value) counts.set(value, (counts.get(value) ?? 0) + 1);
  }
  return [...counts].map(([value, count]) => ({ value, count })).sort((a, b) => b.count - a.count || a.value.localeCompare(b.value));
}
