import { useKeyUsage } from "@/api/queries";
import type { ApiKey, BudgetPeriod } from "@/api/schema";
import { percent, usd } from "@/lib/format";

/** How much of a key's budget is spent in the current period. Periods begin at midnight UTC, weeks on Monday. */
export function BudgetBar({ apiKey: { id, budget }, spent30d }: { apiKey: ApiKey; spent30d: number }) {
  const usage = useKeyUsage(id, budget && periodStart(budget.period, new Date()));
  if (!budget)
    return (
      <span className="block">
        no budget
        <span className="num small block text-muted">{usd(spent30d)} spent in 30 d</span>
      </span>
    );
  const spent = (usage.data?.data ?? []).reduce((sum, day) => sum + Number(day.cost_usd), 0);
  const share = Math.min(1, spent / Math.max(1e-9, Number(budget.usd)));
  return (
    <span className="block min-w-32">
      <span className="num small">
        {usd(spent)} of {usd(budget.usd)} a {budget.period}
      </span>
      <span role="img" aria-label={`${percent(share)} of the budget used`} className="mt-1 block h-2 overflow-hidden rounded-md bg-line">
        <span className={`block h-full ${share > 0.9 ? "bg-offline" : "bg-volt"}`} style={{ width: `${share * 100}%` }} />
      </span>
    </span>
  );
}

function periodStart(period: BudgetPeriod, now: Date): string {
  const day = new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth(), period === "month" ? 1 : now.getUTCDate()));
  if (period === "week") day.setUTCDate(day.getUTCDate() - ((day.getUTCDay() + 6) % 7));
  return day.toISOString().slice(0, 10);
}
