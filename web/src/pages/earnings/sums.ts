import type { EarningSum } from "@/api/types";

const DAY_MS = 86_400_000;
const WEEK_DAYS = 7;

export interface Sums {
  today: number;
  week: number;
  projected: number;
}

export function netOf(line: EarningSum): number {
  return Number(line.net_usd) + Number(line.net_promo_usd);
}

/** Days go by UTC, as the books do. A projection goes by the days since the first of the week with an income. */
export function sumsOf(days: EarningSum[], now: Date): Sums {
  const dayOf = (back: number) => new Date(now.getTime() - back * DAY_MS).toISOString().slice(0, 10);
  const byDay = new Map(days.map((line) => [line.name.slice(0, 10), netOf(line)]));
  const last = Array.from({ length: WEEK_DAYS }, (_, back) => byDay.get(dayOf(back)) ?? 0);
  const week = last.reduce((sum, value) => sum + value, 0);
  const earliest = last.findLastIndex((value) => value > 0);
  const passed = earliest + (now.getTime() % DAY_MS) / DAY_MS;
  return { today: last[0] ?? 0, week, projected: earliest < 0 ? 0 : (week / Math.max(0.25, passed)) * 30 };
}
