import { useQuery } from "@tanstack/react-query";
import { api } from "@/api/client";
import type { ApiKey, List, UsageLine } from "@/api/types";
import { percent, usd } from "@/lib/format";

/** What of a key's budget is used in its period. Periods begin at midnight UTC, weeks on Monday. */
export function BudgetBar({ id, budget, spent30d }: { id: string; budget: ApiKey["budget"]; spent30d: number }) {
  const path = `/v1/usage?by=day&key=${id}&from=${budget ? startOf(budget.period, new Date()) : ""}`;
  const usage = useQuery({
    queryKey: [path],
    queryFn: ({ signal }) => api<List<UsageLine>>(path, { signal }),
    enabled: budget !== null,
    refetchInterval: 10_000,
  });
  if (!budget)
    return (
      <span className="block">
        no budget
        <span className="num small block text-muted">{usd(spent30d)} spent in 30 d</span>
      </span>
    );
  const spent = (usage.data?.data ?? []).reduce((sum, line) => sum + Number(line.cost_usd), 0);
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

function startOf(period: "day" | "week" | "month", now: Date): string {
  const day = new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth(), period === "month" ? 1 : now.getUTCDate()));
  if (period === "week") day.setUTCDate(day.getUTCDate() - ((day.getUTCDay() + 6) % 7));
  return day.toISOString().slice(0, 10);
}
