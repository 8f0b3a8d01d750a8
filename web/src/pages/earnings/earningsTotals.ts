import type { EarningsGroup } from "@/api/schema";

const DAY_MS = 86_400_000;
const WEEK_DAYS = 7;
/** A projection from less than six hours would swing with every job. */
const PASSED_DAYS_MIN = 0.25;

export interface EarningsTotals {
  today: number;
  week: number;
  projected30d: number;
}

/**
 * Days are UTC, as in the books. The projection divides by the days since the week's first earning, not by seven: else a
 * node that joined yesterday would look poor.
 */
export function earningsTotals(days: EarningsGroup[], now: Date): EarningsTotals {
  const dayName = (daysAgo: number) => new Date(now.getTime() - daysAgo * DAY_MS).toISOString().slice(0, 10);
  const netByDay = new Map(days.map((day) => [day.name.slice(0, 10), Number(day.net_usd) + Number(day.net_promo_usd)]));
  const lastDays = Array.from({ length: WEEK_DAYS }, (_, daysAgo) => netByDay.get(dayName(daysAgo)) ?? 0);
  const week = lastDays.reduce((sum, net) => sum + net, 0);
  const earliest = lastDays.findLastIndex((net) => net > 0);
  const passedDays = earliest + (now.getTime() % DAY_MS) / DAY_MS;
  return { today: lastDays[0] ?? 0, week, projected30d: earliest < 0 ? 0 : (week / Math.max(PASSED_DAYS_MIN, passedDays)) * 30 };
}
