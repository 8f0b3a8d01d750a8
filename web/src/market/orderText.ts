// What an order asks for, where it stands and what would have helped, in words.
import type { MarketLease, MarketOrder, MatchRelaxation } from "../api/schema.ts";
import { duration, percent, usd } from "../lib/format.ts";

const NAMES_MAX = 3;

/** What an order asks for, in a few words. */
export function wantedText({ gpu_units, gpu_names, min_vram_gb }: Pick<MarketOrder, "gpu_units" | "gpu_names" | "min_vram_gb">): string {
  if (gpu_units === 0) return "no GPU";
  const names = gpu_names.length > NAMES_MAX ? `${gpu_names.length} kinds of GPU` : gpu_names.join(" or ") || "any GPU";
  return `${gpu_units} × ${names}${min_vram_gb ? `, ${min_vram_gb} GB or more` : ""}`;
}

type Standing = Pick<MarketOrder, "state" | "attempt" | "max_attempts" | "next_attempt_at" | "lease" | "refunded_usd">;

/** Where an order stands, in one sentence. `nowS` is in Unix seconds. */
export function standingText(order: Standing, nameOf: (provider: string) => string, nowS: number): string {
  const { state, lease } = order;
  if (state === "open") return order.attempt ? `The auction of attempt ${order.attempt + 1} runs.` : "The auction runs.";
  if (state === "unmatched") return `Nobody yet. ${nextAttemptText(order, nowS)}`;
  if (lease && state === "matched") return leaseText(lease, nameOf);
  if (lease) return `The lease has ended${lease.close_reason ? `: ${closeText(lease.close_reason)}` : ""}.`;
  return `It ended without a provider${order.refunded_usd === null ? "." : `, and ${usd(order.refunded_usd)} came back.`}`;
}

export function nextAttemptText({ attempt, max_attempts, next_attempt_at }: Pick<MarketOrder, "attempt" | "max_attempts" | "next_attempt_at">, nowS: number): string {
  if (next_attempt_at === null) return "No further auction opens by itself.";
  const leftS = Math.ceil(next_attempt_at - nowS);
  const number = `Attempt ${attempt + 2} of ${Math.max(attempt + 1, max_attempts) + 1}`;
  return leftS > 0 ? `${number} opens in ${duration(leftS)}.` : `${number} opens now.`;
}

function leaseText({ state, provider, hourly_usd }: MarketLease, nameOf: (provider: string) => string): string {
  const price = `${usd(hourly_usd)} an hour`;
  if (!provider) return "It waits for another provider.";
  if (state === "pending") return `${nameOf(provider)} has it, at ${price}, and has not started it yet.`;
  if (state === "active") return `It runs at ${nameOf(provider)}, for ${price}.`;
  return `${nameOf(provider)} has it, at ${price}.`;
}

const CLOSED: Record<string, string> = {
  RENTER: "closed by the renter",
  DURATION: "its time was over",
  PROVIDER_RECLAIM: "taken back by the provider",
  EMPTY: "the deposit was used up",
  NO_PROVIDER: "no provider was left",
};

/** Why a lease ended. */
export function closeText(reason: string): string {
  return CLOSED[reason] ?? reason.toLowerCase().replaceAll("_", " ");
}

const CHANGES: Record<string, (value: string) => string> = {
  max_hourly: (value) => `a highest price of ${usd(value)}/h`,
  region: (value) => `region ${value} as well`,
  tier: (value) => `tier ${value} as well`,
  gpu: (value) => `GPU ${value} as well`,
  gpu_class: (value) => (value === "any" ? "any class of GPU" : `GPUs of class ${value}`),
  vram_gb: (value) => `${value} GB of GPU memory`,
  gpu_count: (value) => (value === "0" ? "no GPU" : `${value} GPUs`),
  compliance: () => "no attested standard",
  uptime: (value) => `an uptime of ${percent(Number(value))}`,
  reputation: (value) => `a reputation of ${percent(Number(value))}`,
};

/** The smallest change of one field that would have let somebody bid. `nameOf` shortens addresses of providers. */
export function relaxationText({ field, value }: Pick<MatchRelaxation, "field" | "value">, nameOf: (provider: string) => string): string {
  if (field === "only") return `${nameOf(value)} among those that may bid`;
  if (field === "ignore") return `${nameOf(value.replace("without ", ""))} not ruled out`;
  return CHANGES[field]?.(value) ?? `${field} ${value}`;
}
